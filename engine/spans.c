#include "engine/spans.h"

#include "engine/pace.h"

#include <pthread.h>
#include <stdlib.h>

struct gm_spans {
	const struct gm_span_sink *sink;
	pthread_mutex_t lock; /* for the two below and the sink */
	bool wanted;
	double origin_us; /* 0: no pass was wanted yet */
	/* the thread's that runs the passes */
	uint32_t layer; /* whose experts were computed last, UINT32_MAX: none in this pass */
	double gpu_us;  /* when the device was done with what it did last */
	double routed_us;
};

struct gm_spans *gm_spans_new(const struct gm_span_sink *sink, struct gm_error *err)
{
	struct gm_spans *spans = gm_alloc(1, sizeof(*spans), err);

	if (!spans)
		return NULL;
	spans->sink = sink;
	pthread_mutex_init(&spans->lock, NULL);
	return spans;
}

void gm_spans_free(struct gm_spans *spans)
{
	if (spans)
		pthread_mutex_destroy(&spans->lock);
	free(spans);
}

double gm_spans_now_us(void)
{
	return gm_pace_real.now_us(gm_pace_real.user);
}

void gm_spans_add(struct gm_spans *spans, enum gm_lane lane, const char *what, uint32_t layer, uint32_t expert,
		  double start_us, double end_us)
{
	struct gm_span span = {.lane = lane, .what = what, .layer = layer, .expert = expert};

	if (!spans)
		return;
	pthread_mutex_lock(&spans->lock);
	if (spans->wanted) {
		span.start_us = start_us - spans->origin_us;
		span.end_us = end_us - spans->origin_us;
		spans->sink->span(spans->sink->user, &span);
	}
	pthread_mutex_unlock(&spans->lock);
}

void gm_spans_begin_pass(struct gm_spans *spans, bool wanted)
{
	if (!spans)
		return;
	spans->layer = UINT32_MAX;
	spans->gpu_us = gm_spans_now_us();
	pthread_mutex_lock(&spans->lock);
	spans->wanted = wanted;
	if (wanted && spans->origin_us == 0)
		spans->origin_us = spans->gpu_us;
	pthread_mutex_unlock(&spans->lock);
}

void gm_spans_routed(struct gm_spans *spans)
{
	if (spans)
		spans->routed_us = gm_spans_now_us();
}

void gm_spans_experts(struct gm_spans *spans, uint32_t layer, uint32_t expert, double start_us, double end_us)
{
	if (!spans)
		return;
	if (spans->layer != layer)
		gm_spans_add(spans, GM_LANE_GPU, "dense", layer, UINT32_MAX, spans->gpu_us, spans->routed_us);
	spans->layer = layer;
	spans->gpu_us = end_us;
	gm_spans_add(spans, GM_LANE_GPU, "expert", layer, expert, start_us, end_us);
}

void gm_spans_end_pass(struct gm_spans *spans)
{
	if (spans)
		gm_spans_add(spans, GM_LANE_GPU, "token", UINT32_MAX, UINT32_MAX, spans->gpu_us, gm_spans_now_us());
}
