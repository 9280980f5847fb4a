/* `traces import --format safetensors` on files written here by the format's rules, good ones and hostile ones. */
#include "test_trace_common.h"

#include "traces/import_common.h"
#include "traces/safetensors.h"

#include <unistd.h>
#include <zstd.h>

enum { TOKENS = 150, LAYERS = 3, EXPERTS = 8 };

static char path[64] = "/tmp/gm-st-XXXXXX", out[80];

/* --- a writer --- */

struct file {
	char header[4096];
	unsigned char data[1 << 16];
	size_t n_header, n_data;
};

static void add_header(struct file *f, const char *text)
{
	size_t n = strlen(text);

	assert_true(f->n_header + n < sizeof(f->header));
	memcpy(f->header + f->n_header, text, n + 1);
	f->n_header += n;
}

static void begin(struct file *f)
{
	f->n_header = f->n_data = 0;
	add_header(f, "{\"__metadata__\":{\"format\":\"pt\"}");
}

static void add_tensor(struct file *f, const char *name, const char *dtype, const char *shape, const void *data,
		       size_t size)
{
	char entry[256];

	snprintf(entry, sizeof(entry), ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", name, dtype,
		 shape, f->n_data, f->n_data + size);
	add_header(f, entry);
	assert_true(f->n_data + size <= sizeof(f->data));
	memcpy(f->data + f->n_data, data, size);
	f->n_data += size;
}

static size_t whole(const struct file *f, unsigned char *bytes)
{
	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)((uint64_t)f->n_header >> 8 * i);
	memcpy(bytes + 8, f->header, f->n_header);
	memcpy(bytes + 8 + f->n_header, f->data, f->n_data);
	return 8 + f->n_header + f->n_data;
}

static void put(const void *bytes, size_t size)
{
	FILE *stream = must(fopen(path, "wb"));

	assert_int_equal(fwrite(bytes, 1, size, stream), size);
	assert_int_equal(fclose(stream), 0);
}

static void finish(struct file *f, bool compressed)
{
	static unsigned char bytes[1 << 17], packed[1 << 17];
	size_t size;

	add_header(f, "}");
	while ((8 + f->n_header) % 8) /* the library pads with blanks */
		add_header(f, " ");
	size = whole(f, bytes);
	if (compressed) {
		size = ZSTD_compress(packed, sizeof(packed), bytes, size, 1);
		assert_false(ZSTD_isError(size));
	}
	put(compressed ? packed : bytes, size);
}

/* Logits [TOKENS][EXPERTS] of a layer as stored; what they are as floats in *as_read. */
static size_t encode(uint32_t layer, const char *dtype, unsigned char *stored, float *as_read)
{
	uint64_t seed = layer + 1;
	size_t at = 0;

	for (size_t i = 0; i < TOKENS * EXPERTS; i++) {
		float value = (float)draw_normal(&seed);
		uint32_t bits;
		uint16_t half;

		memcpy(&bits, &value, sizeof(bits));
		half = strcmp(dtype, "F16") == 0 ? gm_to_f16(value) : (uint16_t)(bits >> 16);
		if (strcmp(dtype, "F32") == 0) {
			memcpy(stored + at, &value, 4);
			at += 4;
			as_read[i] = value;
			continue;
		}
		memcpy(stored + at, &half, 2);
		at += 2;
		bits = (uint32_t)half << 16;
		if (dtype[0] == 'B')
			memcpy(&as_read[i], &bits, sizeof(bits));
		else
			as_read[i] = gm_from_f16(half);
	}
	return at;
}

/* --- importing --- */

static int import(const struct gm_import_options *options, struct gm_error *err)
{
	struct gm_feed *feed = gm_feed_open(path, err);
	int status;

	assert_non_null(feed);
	status = gm_import_safetensors(feed, options, err);
	gm_feed_close(feed);
	return status;
}

static struct gm_import_options plain_options(void)
{
	return (struct gm_import_options){.output = out,
					  .gating = "softmax",
					  .top_k = 2,
					  .tail = GM_TAIL_F32,
					  .tail_given = true,
					  .n_head = 4,
					  .quiet = true};
}

static void compare(float logits[LAYERS][TOKENS][EXPERTS], bool with_tokens)
{
	struct gm_error err = {0};
	struct gm_trace *t = must(gm_trace_open(out, &err));
	struct gm_block b = {0};
	float row[EXPERTS];
	char *numbers = must(gm_json_print(gm_json_get(gm_trace_header(t), "model_layer"), false));

	assert_string_equal(numbers, "[1,2,10]");
	free(numbers);
	assert_int_equal(gm_trace_n_token(t), TOKENS);
	assert_int_equal(gm_trace_n_row(t), TOKENS * LAYERS);
	for (uint64_t i = 0; i < gm_trace_n_block(t); i++) {
		assert_int_equal(gm_trace_read(t, i, GM_WANT_TAIL, &b, &err), 1);
		for (uint32_t k = 0; k < b.n_token; k++) {
			uint64_t token = b.first_token + k;

			assert_int_equal(b.token[k], with_tokens ? 7 * (int32_t)token - 1 : -1);
			for (uint32_t layer = 0; layer < LAYERS; layer++) {
				gm_block_logits(&b, gm_trace_model(t), layer, k, row);
				assert_memory_equal(row, logits[layer][token], sizeof(row));
			}
		}
	}
	gm_block_free(&b);
	gm_trace_close(t);
}

static float as_read[LAYERS][TOKENS][EXPERTS];

/* Layers 1, 2 and 10 in the file's order 10, 1, 2; with token ids between them. */
static void write_good(const char *dtype, const char *name_format, bool tokens, bool compressed)
{
	static const unsigned order[] = {2, 0, 1}, number[] = {1, 2, 10};
	static unsigned char stored[TOKENS * EXPERTS * 4];
	struct file f;
	int64_t ids[TOKENS];
	char name[64];

	for (int i = 0; i < TOKENS; i++)
		ids[i] = 7 * i - 1;
	begin(&f);
	for (unsigned i = 0; i < LAYERS; i++) {
		size_t size = encode(order[i], dtype, stored, as_read[order[i]][0]);

		snprintf(name, sizeof(name), name_format, number[order[i]]);
		add_tensor(&f, name, dtype, "150,8", stored, size);
		if (i == 0 && tokens)
			add_tensor(&f, "input_ids", "I64", "1,150", ids, sizeof(ids));
	}
	finish(&f, compressed);
}

static void test_types(void **state)
{
	static const char *const dtypes[] = {"F32", "F16", "BF16"};
	struct gm_import_options options = plain_options();

	(void)state;
	for (int i = 0; i < 12; i++) {
		struct gm_error err = {0};

		write_good(dtypes[i % 3], "model.layers.%u.mlp.gate", i % 2, i >= 6);
		OK(import(&options, &err));
		compare(as_read, i % 2);
	}
}

static void test_pattern(void **state)
{
	struct gm_import_options options = plain_options();
	struct gm_error err = {0};
	struct file f;
	static unsigned char stored[TOKENS * EXPERTS * 4];
	float unused[TOKENS * EXPERTS];

	(void)state;
	write_good("F32", "layer%u_gate_v2", false, false);
	assert_int_equal(import(&options, &err), GM_ERR_FORMAT);
	assert_non_null(strstr(err.text, "--tensors PATTERN"));
	options.tensors = "layer*_gate_v2";
	memset(&err, 0, sizeof(err));
	OK(import(&options, &err));
	compare(as_read, false);
	options.tensors = "router_logits.*";
	assert_int_equal(import(&options, &err), GM_ERR_USAGE);
	assert_non_null(strstr(err.text, "no tensor matches: --tensors \"router_logits.*\""));

	/* one layer without a number, other tensors beside it */
	begin(&f);
	add_tensor(&f, "gate", "F32", "150,8", stored, encode(0, "F32", stored, unused));
	add_tensor(&f, "hidden", "F32", "2,3", stored, 24);
	finish(&f, false);
	options.tensors = "gate";
	memset(&err, 0, sizeof(err));
	OK(import(&options, &err));
	options.tensors = "*";
	memset(&err, 0, sizeof(err));
	assert_int_equal(import(&options, &err), GM_ERR_USAGE);
}

/* --- damaged and hostile files --- */

/* Puts a header before n_data bytes of zeros. */
static void put_header(const char *header, size_t n_data)
{
	static unsigned char bytes[8192];
	size_t n = strlen(header);

	memset(bytes, 0, sizeof(bytes));
	bytes[0] = (unsigned char)n;
	bytes[1] = (unsigned char)(n >> 8);
	memcpy(bytes + 8, header, n);
	put(bytes, 8 + n + n_data);
}

static void test_hostile(void **state)
{
#define T(name, dtype, shape, begin, end) \
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin "," #end "]}"
	static const struct {
		const char *header;
		size_t n_data;
		const char *message;
	} cases[] = {
		{"{}", 0, "no tensor of floats"},
		{"{" T("a.0", "I64", "2,4", 0, 64) "}", 64, "no tensor of floats"},
		{"[]", 0, "it must be a JSON object"},
		{"{" T("a.0", "F32", "2,4", 0, 32), 32, "bracket left open"},
		{"{" T("a.0", "F32", "2,4", 0, 32) "," T("a.0", "F32", "2,4", 0, 32) "}", 32, "twice"},
		{"{" T("a.0", "F32", "2,4", 0, 31) "}", 31, "another size than its shape"},
		{"{" T("a.0", "F32", "2,4", 0, 32) "}", 31, "is the file whole?"},
		{"{" T("a.0", "F32", "2,4", 0, 32) "}", 33, "is the file whole?"},
		{"{" T("a.0", "F32", "2,4", 4, 36) "}", 36, "does not begin where the one before it ends"},
		{"{" T("a.0", "F32", "2,4", 32, 0) "}", 32, "data_offsets"},
		{"{" T("a.0", "F32", "2,4", 0, 32) "," T("a.1", "F32", "2,4", 16, 48) "}", 48, "does not begin where"},
		{"{" T("a.0", "F32", "4294967296,4294967296,4294967296", 0, 32) "}", 32, "absurd shape"},
		{"{" T("a.0", "F32", "1e300,4", 0, 32) "}", 32, "\"shape\""},
		{"{" T("a.0", "F32", "-1,4", 0, 32) "}", 32, "\"shape\""},
		{"{" T("a.0", "F32", "2.5,4", 0, 40) "}", 40, "\"shape\""},
		{"{" T("a.0", "F32", "1,1,1,1,1,1,1,1,2,4", 0, 32) "}", 32, "\"shape\""},
		{"{" T("a.0", "F32", "2,2,2", 0, 32) "}", 32, "3 dimensions"},
		{"{" T("a.0", "F32", "8", 0, 32) "}", 32, "1 dimensions"},
		{"{" T("a.0", "F32", "0,4", 0, 0) "}", 0, "is [0, 4]"},
		{"{" T("a.0", "F16", "1,65537", 0, 131074) "}", 0, "is the file whole?"},
		{"{" T("a.0", "F32", "2,4", 0, 32) "," T("a.1", "F32", "1,8", 32, 64) "}", 64, "different shapes"},
		{"{" T("a.0", "F32", "2,4", 0, 32) "," T("b.1", "F32", "2,4", 32, 64) "}", 64, "--tensors PATTERN"},
		{"{" T("a.1", "F32", "2,4", 0, 32) "," T("a.01", "F32", "2,4", 32, 64) "}", 64,
		 "layer 1 stands there twice"},
		{"{\"a.0\":{\"dtype\":\"F32\",\"shape\":[2,4]}}", 0, "data_offsets"},
		{"{\"a.0\":{\"shape\":[2,4],\"data_offsets\":[0,32]}}", 32, "dtype"},
		{"{\"a.0\":7}", 0, "dtype"},
		{"{\"a.0\":null}", 0, "dtype"},
	};
#undef T
	struct gm_import_options options = plain_options();
	struct gm_error err;

	(void)state;
	unlink(out);
	options.n_head = 0;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memset(&err, 0, sizeof(err));
		put_header(cases[i].header, cases[i].n_data);
		assert_true(import(&options, &err) < 0);
		if (!strstr(err.text, cases[i].message))
			fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].header, err.text, cases[i].message);
	}
	memset(&err, 0, sizeof(err));
	put("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
	assert_int_equal(import(&options, &err), GM_ERR_FORMAT);
	memset(&err, 0, sizeof(err));
	put("\0\xe0\xf5\5\0\0\0\0{}", 10); /* 100,000,000 bytes of header are allowed, but they are not there */
	assert_int_equal(import(&options, &err), GM_ERR_FORMAT);
	assert_int_not_equal(access(out, F_OK), 0);
}

/* Every beginning of a file is refused; random damage never does harm. */
static void test_damage(void **state)
{
	struct gm_import_options options = plain_options();
	static unsigned char bytes[1 << 17], damaged[1 << 17];
	struct gm_error err = {0};
	uint64_t seed = 5;
	size_t size;
	FILE *stream;

	(void)state;
	write_good("BF16", "router_logits.%u", true, false);
	stream = must(fopen(path, "rb"));
	size = fread(bytes, 1, sizeof(bytes), stream);
	fclose(stream);
	for (size_t n = 0; n < size; n += n < 600 ? 1 : 97) {
		memset(&err, 0, sizeof(err));
		put(bytes, n);
		assert_true(import(&options, &err) < 0);
	}
	for (int i = 0; i < 1000; i++) {
		memcpy(damaged, bytes, size);
		for (uint32_t n = 1 + draw_below(&seed, 3); n > 0; n--)
			damaged[draw_below(&seed, 560)] =
				(unsigned char)(i % 2 ? '0' + draw_below(&seed, 10) : draw_below(&seed, 256));
		put(damaged, size);
		memset(&err, 0, sizeof(err));
		import(&options, &err);
	}
	unlink(out);
}

static int set_up(void **state)
{
	int fd = mkstemp(path);

	(void)state;
	snprintf(out, sizeof(out), "%s.gmt", path);
	return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
	(void)state;
	unlink(out);
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_pattern),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_damage),
	};

	return cmocka_run_group_tests_name("safetensors", tests, set_up, tear_down);
}
