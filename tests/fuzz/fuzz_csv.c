/* What is read as CSV, written and read again, must give the same fields. */
#include "base/csv.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads all of text and writes it to a new text, which the caller frees. NULL where it is no CSV. */
static char *rewrite(const char *text, size_t size, size_t *out_size)
{
	char *out = NULL;
	FILE *from = fmemopen((char *)(uintptr_t)text, size, "r"), *to = open_memstream(&out, out_size);
	struct gm_csv_writer writer = {.stream = to};
	struct gm_csv_reader reader;
	int status;

	if (!from || !to)
		abort();
	gm_csv_open(&reader, from, "fuzz");
	while ((status = gm_csv_next(&reader, NULL)) == 1) {
		for (size_t i = 0; i < reader.n_field; i++)
			gm_csv_text(&writer, reader.field[i]);
		gm_csv_end_row(&writer);
	}
	gm_csv_close(&reader);
	fclose(from);
	fclose(to);
	if (status == 0)
		return out;
	free(out);
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t n_first = 0, n_second = 0;

	if (size == 0)
		return 0;
	char *first = rewrite((const char *)data, size, &n_first);
	if (!first || n_first == 0) {
		free(first);
		return 0;
	}
	char *second = rewrite(first, n_first, &n_second);
	if (!second || n_first != n_second || memcmp(first, second, n_first) != 0)
		abort();
	free(first);
	free(second);
	return 0;
}
