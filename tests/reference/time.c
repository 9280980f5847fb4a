/* R6, R14-R16, R18, R19: the disk, the link, the GPU and the CPU. */
#include "tests/reference/reference_private.h"

#include <assert.h>
#include <math.h>

/* bytes / bandwidth; GB/s are 1e3 bytes a us, and 0 means infinitely fast. */
static double transfer_us(double latency_us, double gb_s, uint64_t bytes)
{
	if (gb_s > 0)
		return latency_us + (double)bytes / (gb_s * 1e3);
	return latency_us;
}

/* copy(e) */
static double copy_us(const struct replay *r, size_t id)
{
	return transfer_us(r->config->link_latency_us, r->config->link_gb_s, bytes_of(r, id));
}

/* -------------------------------------------------------- R18: disk tier */

static uint64_t host_bytes(const struct replay *r)
{
	uint64_t bytes = 0;

	for (size_t id = 0; id < n_id(r); id++)
		if (r->expert[id].in_host)
			bytes += bytes_of(r, id);
	return bytes;
}

/* R18: the least recently touched expert in host RAM, SIZE_MAX if it is empty. */
static size_t host_victim(const struct replay *r)
{
	size_t victim = SIZE_MAX;

	for (size_t id = 0; id < n_id(r); id++)
		if (r->expert[id].in_host &&
		    (victim == SIZE_MAX || r->expert[id].host_touch < r->expert[victim].host_touch))
			victim = id;
	return victim;
}

double ref_issue_read(struct replay *r, size_t id)
{
	struct expert *x = &r->expert[id];
	double start_us;

	if (!r->config->disk)
		return r->t1_us;
	x->host_touch = ++r->host_clock;
	if (x->in_host) {
		/*
		 * Its read has ended: the layer waits for the reads of fetches and CPU picks, and while the read of a
		 * background copy runs its expert is late, so that nothing issues it again.
		 */
		assert(x->read_end_us <= r->t1_us);
		reach(r->coverage, REF_R18_HOST_HIT);
		return r->t1_us;
	}
	/* The disk does one thing at a time, in order of issue. */
	start_us = fmax(r->t1_us, r->disk_free_us);
	if (start_us > r->t1_us)
		reach(r->coverage, REF_R18_DISK_BUSY);
	x->read_end_us = start_us + transfer_us(r->config->disk_latency_us, r->config->disk_gb_s, bytes_of(r, id));
	r->disk_free_us = x->read_end_us;
	reach(r->coverage, REF_R18_READ);

	/* The least recently touched leave until it fits; what is larger than host RAM is not kept. */
	while (host_bytes(r) + bytes_of(r, id) > r->config->host_expert_bytes) {
		size_t victim = host_victim(r);

		if (victim == SIZE_MAX) {
			reach(r->coverage, REF_R18_LARGER_THAN_HOST);
			return x->read_end_us;
		}
		reach(r->coverage, REF_R18_HOST_EVICT);
		if (r->expert[victim].read_end_us > r->t1_us)
			reach(r->coverage, REF_R18_EVICT_IN_FLIGHT);
		r->expert[victim].in_host = 0;
	}
	x->in_host = 1;
	return x->read_end_us;
}

/* ------------------------------------------ R6, R14: queue, landing, copies asked for now */

/* The queued copy that was queued first, SIZE_MAX if the queue is empty. */
static size_t queue_head(const struct replay *r)
{
	size_t head = SIZE_MAX;

	for (size_t id = 0; id < n_id(r); id++)
		if (r->expert[id].place == REF_QUEUED &&
		    (head == SIZE_MAX || r->expert[id].queue_number < r->expert[head].queue_number))
			head = id;
	return head;
}

/* Coverage only: why the queue stopped at its head. */
static void reach_stopped_queue(struct replay *r, size_t head)
{
	if (r->link_free_us > r->t1_us) {
		reach(r->coverage, REF_R6_LINK_BUSY);
		return;
	}
	reach(r->coverage, REF_R6_WAITS_FOR_DISK);
	for (size_t id = 0; id < n_id(r); id++)
		if (id != head && r->expert[id].place == REF_QUEUED && r->expert[id].queued_us <= r->t1_us) {
			reach(r->coverage, REF_R6_HEAD_BLOCKS);
			return;
		}
}

void ref_link_and_landing(struct replay *r)
{
	/* R6: queued copies start in FIFO order while their start is not after T1. */
	for (;;) {
		size_t head = queue_head(r);
		struct expert *x;
		double start_us;

		if (head == SIZE_MAX)
			break;
		x = &r->expert[head];
		start_us = fmax(r->link_free_us, x->queued_us);
		if (start_us > r->t1_us) {
			reach_stopped_queue(r, head);
			break;
		}
		reach(r->coverage, REF_R6_START);
		if (start_us > x->queued_us)
			reach(r->coverage, REF_R6_DELAYED_BY_LINK);
		x->place = REF_UNDER_WAY;
		x->arrival_us = start_us + copy_us(r, head);
		r->link_free_us = x->arrival_us;
	}
	/* R6: every copy that has arrived by T1 becomes resident. */
	for (size_t id = 0; id < n_id(r); id++) {
		struct expert *x = &r->expert[id];

		if (x->place != REF_UNDER_WAY)
			continue;
		if (x->arrival_us <= r->t1_us) {
			x->place = REF_RESIDENT;
			reach(r->coverage, REF_R6_LAND);
		} else {
			reach(r->coverage, REF_R6_STILL_UNDER_WAY);
		}
	}
}

void ref_start_copy_now(struct replay *r, size_t id, uint32_t e)
{
	double start_us = fmax(fmax(r->t1_us, r->link_free_us), r->read_end_us[e]);

	if (start_us <= r->t1_us)
		reach(r->coverage, REF_R14_AT_T1);
	if (r->link_free_us > r->t1_us)
		reach(r->coverage, REF_R14_WAITS_FOR_LINK);
	if (r->read_end_us[e] > fmax(r->t1_us, r->link_free_us))
		reach(r->coverage, REF_R14_WAITS_FOR_DISK);
	if (queue_head(r) != SIZE_MAX)
		reach(r->coverage, REF_R14_OVERTAKES);
	for (size_t i = 0; i < n_id(r); i++)
		if (r->expert[i].place == REF_UNDER_WAY && r->expert[i].arrival_us > r->t1_us) {
			reach(r->coverage, REF_R14_BEHIND_BACKGROUND);
			break;
		}
	r->arrival_us[e] = start_us + copy_us(r, id);
	r->link_free_us = r->arrival_us[e];
}

/* ----------------------------------------------- R15, R16, R19: the end of a layer */

/* R15: what the GPU does in the layer; adds to the split and returns the GPU's end. */
static double gpu_time(struct replay *r, struct ref_time *split)
{
	double expert_us = layer_value(r->config->gpu_expert_us, r->layer);
	double gpu_free_us;
	uint32_t n_from_t1 = 0;
	uint32_t n_computed;

	/* R15: hits and substitutes, distinct experts, from T1. */
	for (uint32_t e = 0; e < r->trace->n_expert; e++) {
		if (r->judgement[e] == HIT || r->is_substitute[e])
			n_from_t1++;
		if (r->judgement[e] == HIT && r->is_substitute[e])
			reach(r->coverage, REF_R15_HIT_IS_SUBSTITUTE);
	}
	if (n_from_t1 > 0)
		reach(r->coverage, REF_R15_FROM_T1);
	gpu_free_us = r->t1_us + (double)n_from_t1 * expert_us;
	n_computed = n_from_t1;

	/* R15: then each fetched or late-hit expert in request order. */
	for (uint32_t n = 0; n < r->n_request; n++) {
		uint32_t e = r->request[n];

		if (!r->fetched[e])
			continue;
		if (r->arrival_us[e] > gpu_free_us) {
			/* R19: idle until the arrival: first for its disk read, then for the link. */
			double read_us = fmax(gpu_free_us, r->read_end_us[e]);

			split->disk_wait += read_us - gpu_free_us;
			split->link_wait += r->arrival_us[e] - read_us;
			reach(r->coverage, REF_R15_WAITS);
			if (read_us > gpu_free_us)
				reach(r->coverage, REF_R19_DISK_WAIT);
			if (r->arrival_us[e] > read_us)
				reach(r->coverage, REF_R19_LINK_WAIT);
			if (read_us > gpu_free_us && r->arrival_us[e] > read_us)
				reach(r->coverage, REF_R19_DISK_THEN_LINK);
			gpu_free_us = r->arrival_us[e];
		} else {
			reach(r->coverage, REF_R15_NO_WAIT);
		}
		gpu_free_us += expert_us;
		n_computed++;
	}
	split->gpu += (double)n_computed * expert_us;
	return gpu_free_us;
}

/* R16: the CPU's end; T1 if it has nothing to do. */
static double cpu_time(struct replay *r)
{
	double expert_us = layer_value(r->config->cpu_expert_us, r->layer);
	double cpu_free_us = r->t1_us + r->config->cpu_roundtrip_us;
	uint32_t n_cpu = 0;

	/* R16, R18: the distinct experts one after the other in request order, none before the end of its read. */
	for (uint32_t n = 0; n < r->n_request; n++) {
		uint32_t e = r->request[n];

		if (!r->on_cpu[e])
			continue;
		if (r->read_end_us[e] > cpu_free_us) {
			reach(r->coverage, REF_R16_WAITS_FOR_DISK);
			cpu_free_us = r->read_end_us[e];
		}
		cpu_free_us += expert_us;
		n_cpu++;
	}
	if (n_cpu == 0)
		return r->t1_us;
	reach(r->coverage, REF_R16_CPU);
	return cpu_free_us;
}

static void add_time(struct ref_time *sum, const struct ref_time *part)
{
	sum->total += part->total;
	sum->dense += part->dense;
	sum->gpu += part->gpu;
	sum->link_wait += part->link_wait;
	sum->disk_wait += part->disk_wait;
	sum->cpu_wait += part->cpu_wait;
	sum->token += part->token;
}

double ref_layer_end(struct replay *r)
{
	struct ref_time split = {0};
	double gpu_end_us = gpu_time(r, &split);
	double cpu_end_us = cpu_time(r);
	double end_us = fmax(gpu_end_us, cpu_end_us);
	int has_cpu = 0;

	for (uint32_t n = 0; n < r->n_request; n++)
		if (r->on_cpu[r->request[n]])
			has_cpu = 1;
	if (has_cpu)
		reach(r->coverage, cpu_end_us > gpu_end_us ? REF_R16_CPU_LAST : REF_R16_GPU_LAST);
	if (end_us > gpu_end_us)
		reach(r->coverage, REF_R19_CPU_WAIT);
	split.dense = r->t1_us - r->now_us;
	split.cpu_wait = end_us - gpu_end_us;
	split.total = end_us - r->now_us;
	if (counted(r, r->current_token)) {
		add_time(&r->result->layer_time[r->layer], &split);
		split.total = 0; /* the total of the run is summed over passes */
		add_time(&r->result->time, &split);
	}
	return end_us;
}
