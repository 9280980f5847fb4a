/* Blocks whose checksums are right and whose values are not: each is refused by name, and at its row where that is said, whichever way planes
 * are joined. What is right comes back, bit for bit. */
#include "test_trace_common.h"

#include "traces/codec.h"

#define N_LAYER 3u
#define N_EXPERT 300u
#define N_HEAD 40u /* a tile of the vectors, and a rest */
#define N_TAIL (N_EXPERT - N_HEAD)
#define TOP_K 10u
#define N_TOKEN 7u
#define N_ROW (N_LAYER * N_TOKEN)

enum wrong { NOTHING, LOGIT, LSE, TAIL, TOO_LARGE, TWICE, TWICE_BEYOND, N_WRONG };

struct block_case {
	struct gm_geometry geometry;
	int32_t token[N_TOKEN];
	uint32_t zero[N_TOKEN], pass[N_TOKEN];
	uint8_t present[N_ROW];
	uint16_t head[N_ROW][N_HEAD], tail_16[N_ROW][N_TAIL];
	float logit[N_ROW][N_HEAD], tail_32[N_ROW][N_TAIL];
	double lse[N_ROW];
	uint32_t n_present, wrong_row; /* the latter among those that are present */
};

static float draw_wrong(uint64_t *seed)
{
	static const float values[] = {INFINITY, -INFINITY, NAN};

	return values[draw_below(seed, 3)];
}

/* A row of experts in random order, and logits in none. */
static void fill_row(struct block_case *c, uint32_t row, uint64_t *seed)
{
	uint16_t order[N_EXPERT] = {0};

	for (uint32_t e = 0; e < N_EXPERT; e++) {
		uint32_t other = draw_below(seed, e + 1);
		order[e] = order[other];
		order[other] = (uint16_t)e;
	}
	memcpy(c->head[row], order, sizeof(c->head[row]));
	for (uint32_t r = 0; r < N_HEAD; r++)
		c->logit[row][r] = draw_logit(seed, VALUES_NORMAL);
	for (uint32_t r = 0; r < N_TAIL; r++) {
		c->tail_32[row][r] = draw_logit(seed, VALUES_NORMAL);
		c->tail_16[row][r] = gm_to_f16(c->tail_32[row][r]);
	}
	c->lse[row] = draw_normal(seed);
}

static void spoil(struct block_case *c, uint32_t row, enum wrong wrong, uint64_t *seed)
{
	uint32_t place = draw_below(seed, N_TAIL), rank = draw_below(seed, N_HEAD), in_s = draw_below(seed, TOP_K - 1);

	if (wrong == LOGIT)
		c->logit[row][rank] = draw_wrong(seed);
	if (wrong == LSE)
		c->lse[row] = (double)draw_wrong(seed);
	if (wrong == TAIL) {
		c->tail_32[row][place] = draw_wrong(seed);
		c->tail_16[row][place] = (uint16_t)(0x7c00 | draw_below(seed, 0x400) | draw_below(seed, 2) << 15);
	}
	if (wrong == TOO_LARGE)
		c->head[row][rank] = (uint16_t)(N_EXPERT + draw_below(seed, 512 - N_EXPERT));
	if (wrong == TWICE)
		c->head[row][in_s + 1 + draw_below(seed, TOP_K - 1 - in_s)] = c->head[row][in_s];
	if (wrong == TWICE_BEYOND)
		c->head[row][TOP_K + draw_below(seed, N_HEAD - TOP_K)] = c->head[row][in_s];
}

static void draw_case(struct block_case *c, enum wrong wrong, uint64_t *seed)
{
	uint32_t row;

	memset(c, 0, sizeof(*c));
	c->geometry = (struct gm_geometry){.kind = GM_KIND_LOGITS,
					   .tail = draw_below(seed, 2) ? GM_TAIL_F16 : GM_TAIL_F32,
					   .n_layer = N_LAYER,
					   .n_expert = N_EXPERT,
					   .n_head = N_HEAD,
					   .top_k = TOP_K};
	for (uint32_t i = 0; i < N_TOKEN; i++)
		c->pass[i] = i;
	for (row = 0; row < N_ROW; row++) {
		c->present[row] = draw_below(seed, 8) > 0;
		c->n_present += c->present[row];
		fill_row(c, row, seed);
	}
	assert_true(c->n_present > 0);
	for (row = draw_below(seed, N_ROW); !c->present[row];)
		row = (row + 1) % N_ROW;
	for (uint32_t i = 0; i < row; i++)
		c->wrong_row += c->present[i];
	spoil(c, row, wrong, seed);
}

static void check_values(const struct block_case *c, const struct gm_block *b)
{
	for (uint32_t row = 0; row < N_ROW; row++) {
		assert_int_equal(b->present[row], c->present[row]);
		if (!c->present[row])
			continue;
		assert_memory_equal(b->head + row * N_HEAD, c->head[row], sizeof(c->head[row]));
		assert_memory_equal(b->logit + row * N_HEAD, c->logit[row], sizeof(c->logit[row]));
		assert_memory_equal(b->lse + row, &c->lse[row], sizeof(double));
		for (uint32_t r = 0; b->tail && r < N_TAIL; r++) {
			float expected =
				c->geometry.tail == GM_TAIL_F16 ? gm_from_f16(c->tail_16[row][r]) : c->tail_32[row][r];
			assert_int_equal(bits_of(b->tail[row * N_TAIL + r]), bits_of(expected));
		}
	}
}

/* What a reader says, NULL: nothing is wrong with it. */
static const char *expected_text(const struct block_case *c, enum wrong wrong, unsigned want)
{
	static char text[100];

	snprintf(text, sizeof(text), "an expert stands twice: row %u of the block: must stand once", c->wrong_row);
	switch (wrong) {
	case LOGIT:
		return "a logit of the head is not a finite number";
	case LSE:
		return "a log-sum-exp is not a finite number";
	case TAIL:
		return want & GM_WANT_TAIL ? "a logit of the tail is not a finite number" : NULL;
	case TOO_LARGE:
		return "a row names an expert that is not below n_expert (300)";
	case TWICE:
		return text;
	case TWICE_BEYOND: /* who reads the tail needs to know who is in it */
		return want & GM_WANT_TAIL ? text : NULL;
	default:
		return NULL;
	}
}

static void check_decode(const struct block_case *c, enum wrong wrong, unsigned want, struct gm_codec *codec,
			 const struct gm_buffer *frame)
{
	const uint8_t *payload = frame->data + GM_FRAME_BYTES;
	const char *text = expected_text(c, wrong, want);
	struct gm_directory directory;
	struct gm_block block = {0};
	struct gm_error err = {0};

	OK(gm_directory_parse(&c->geometry, payload, frame->size - GM_FRAME_BYTES, frame->size - GM_FRAME_BYTES, &directory,
			      &err));
	int status = gm_codec_decode(codec, &directory, payload, want, &block, &err);
	assert_int_equal(status, text ? GM_ERR_FORMAT : GM_OK);
	assert_string_equal(err.text, text ? text : "");
	if (!text && wrong != TAIL)
		check_values(c, &block);
	gm_block_free(&block);
}

static void run_case(uint64_t seed, enum wrong wrong)
{
	static struct block_case c;
	struct gm_buffer frame = {0};
	struct gm_error err = {0};
	uint32_t n_row;
	uint64_t hash;

	draw_case(&c, wrong, &seed);
	struct gm_rows rows = {.stride = N_TOKEN,
			       .token = c.token,
			       .sequence = c.zero,
			       .position = c.pass,
			       .pass = c.pass,
			       .present = c.present,
			       .head = c.head[0],
			       .logit = c.logit[0],
			       .lse = c.lse,
			       .tail_16 = c.tail_16[0],
			       .tail_32 = c.tail_32[0]};
	struct gm_codec *codec = must(gm_codec_new(&c.geometry, &err));
	OK(gm_codec_encode(codec, &rows, 0, N_TOKEN, 0, 0, (int)draw_below(&seed, 3), &frame, &n_row, &hash, &err));
	assert_int_equal(n_row, c.n_present);
	for (uint32_t way = 0; way < 2; way++) {
		codec->planes = way ? gm_planes_best() : &gm_planes_plain;
		check_decode(&c, wrong, GM_WANT_HEAD, codec, &frame);
		check_decode(&c, wrong, GM_WANT_TAIL, codec, &frame);
	}
	gm_codec_free(codec);
	gm_buffer_free(&frame);
}

static void test_values(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 40; seed++)
		for (int wrong = NOTHING; wrong < N_WRONG; wrong++)
			run_case(seed * N_WRONG + (uint64_t)wrong, (enum wrong)wrong);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_values)};

	return cmocka_run_group_tests_name("trace codec", tests, NULL, NULL);
}
