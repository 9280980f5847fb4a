#include "sim/stack.h"

#include <string.h>

#define NO_MOMENT UINT32_MAX
#define MOMENTS_PER_EXPERT 8u /* room before moments are renumbered */

struct gm_stack {
	uint32_t n_expert, top_k, n_word, depth;
	uint32_t next;   /* the first moment that is free */
	uint32_t moment; /* offset of uint32_t [n_expert]: of the last request, NO_MOMENT: none */
	uint32_t behind; /* offset of uint32_t [n_word]: bits in the words behind a word */
	uint32_t more;   /* offset of uint32_t [n_word]: what the event adds to `behind` from a word on; 0 between events */
	uint64_t bits[]; /* [n_word] moments that are some expert's last */
};

static uint32_t n_word_of(uint32_t n_expert, uint32_t top_k)
{
	return (MOMENTS_PER_EXPERT * n_expert + top_k + 63) / 64;
}

size_t gm_stack_bytes(uint32_t n_expert, uint32_t top_k)
{
	size_t n_word = n_word_of(n_expert, top_k);
	size_t bytes = sizeof(struct gm_stack) + n_word * sizeof(uint64_t) + n_expert * sizeof(uint32_t) +
		       2 * n_word * sizeof(uint32_t);

	return (bytes + 63) / 64 * 64;
}

static uint32_t *at(struct gm_stack *s, uint32_t offset)
{
	return (uint32_t *)(void *)((char *)s + offset);
}

struct gm_stack *gm_stack_init(void *memory, uint32_t n_expert, uint32_t top_k)
{
	struct gm_stack *s = memory;
	uint32_t n_word = n_word_of(n_expert, top_k);

	*s = (struct gm_stack){.n_expert = n_expert, .top_k = top_k, .n_word = n_word};
	s->moment = (uint32_t)(sizeof(*s) + n_word * sizeof(uint64_t));
	s->behind = s->moment + n_expert * (uint32_t)sizeof(uint32_t);
	s->more = s->behind + n_word * (uint32_t)sizeof(uint32_t);
	gm_stack_clear(s);
	return s;
}

void gm_stack_clear(struct gm_stack *s)
{
	memset(s->bits, 0, s->n_word * sizeof(*s->bits));
	memset(at(s, s->behind), 0, s->n_word * sizeof(uint32_t));
	memset(at(s, s->more), 0, s->n_word * sizeof(uint32_t));
	for (uint32_t e = 0; e < s->n_expert; e++)
		at(s, s->moment)[e] = NO_MOMENT;
	s->next = s->depth = 0;
}

/* Bits of a word; without an instruction for it that not every machine has. */
static uint32_t popcount(uint64_t x)
{
	x -= x >> 1 & UINT64_C(0x5555555555555555);
	x = (x & UINT64_C(0x3333333333333333)) + (x >> 2 & UINT64_C(0x3333333333333333));
	x = (x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
	return (uint32_t)(x * UINT64_C(0x0101010101010101) >> 56);
}

static uint32_t place_of(const struct gm_stack *s, const uint32_t *behind, uint32_t moment)
{
	return popcount(s->bits[moment / 64] >> 1 >> moment % 64) + behind[moment / 64];
}

/* The line is full: the moments that count move to its start, in their order. */
static void renumber(struct gm_stack *s)
{
	uint32_t *moment = at(s, s->moment), *behind = at(s, s->behind), depth = s->depth;

	for (uint32_t e = 0; e < s->n_expert; e++)
		if (moment[e] != NO_MOMENT)
			moment[e] = depth - 1 - place_of(s, behind, moment[e]);
	for (uint32_t word = 0; word < s->n_word; word++) {
		uint32_t before = word * 64, n = depth > before ? depth - before : 0;

		s->bits[word] = n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
		behind[word] = n >= 64 ? n - 64 : 0;
	}
	s->next = depth;
}

void gm_stack_request(struct gm_stack *s, const uint16_t *pick, uint32_t *place)
{
	uint32_t *moment = at(s, s->moment), *behind = at(s, s->behind), *more = at(s, s->more);
	uint32_t top_k = s->top_k, first = UINT32_MAX, n = 0, last;

	if (s->next + top_k > s->n_word * 64)
		renumber(s);
	for (uint32_t i = 0; i < top_k; i++)
		place[i] = moment[pick[i]] == NO_MOMENT ? s->n_expert : place_of(s, behind, moment[pick[i]]);
	/* A moment that moves from one word to a later one is behind all words from the one to before the other. */
	for (uint32_t i = 0; i < top_k; i++) {
		uint32_t old = moment[pick[i]], word = old == NO_MOMENT ? 0 : old / 64;

		s->bits[word] &= ~((uint64_t)(old != NO_MOMENT) << old % 64);
		s->depth += old == NO_MOMENT;
		more[word]++;
		first = word < first ? word : first;
	}
	last = (s->next + top_k - 1) / 64;
	for (uint32_t i = 0; i < top_k; i++) {
		moment[pick[i]] = s->next;
		s->bits[s->next / 64] |= UINT64_C(1) << s->next % 64;
		more[s->next / 64]--;
		s->next++;
	}
	for (uint32_t word = first; word <= last; word++) {
		n += more[word];
		behind[word] += n;
		more[word] = 0;
	}
}

uint32_t gm_stack_depth(const struct gm_stack *s)
{
	return s->depth;
}
