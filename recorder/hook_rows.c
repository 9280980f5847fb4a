/* Rows of router tensors between wherever they lie and host memory. */
#include "recorder/hook_private.h"

#include <stdlib.h>
#include <string.h>

static ggml_backend_buffer_t buffer_of(const struct ggml_tensor *tensor)
{
	if (tensor->buffer || !tensor->view_src)
		return tensor->buffer;
	return tensor->view_src->buffer;
}

static bool lies_in_host(const struct ggml_tensor *tensor)
{
	ggml_backend_buffer_t buffer = buffer_of(tensor);

	return !buffer || ggml_backend_buffer_is_host(buffer);
}

int hook_rows_of(struct hook_rows *rows, struct ggml_tensor *tensor, uint32_t width, struct gm_error *err)
{
	int dim = tensor->ne[0] == (int64_t)width && tensor->ne[2] == 1 ? 1 : 2; /* [width, n] or [1, width, n] */

	if ((tensor->type != GGML_TYPE_F32 && tensor->type != GGML_TYPE_I32) || tensor->ne[dim - 1] != (int64_t)width ||
	    tensor->nb[dim - 1] != sizeof(float) || tensor->ne[3] != 1 || (dim == 2 && tensor->ne[0] != 1))
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "unexpected shape of %s: %s [%lld, %lld, %lld]: must be [%u, n] of 4-byte values",
			       tensor->name, ggml_type_name(tensor->type), (long long)tensor->ne[0],
			       (long long)tensor->ne[1], (long long)tensor->ne[2], width);
	rows->tensor = tensor;
	rows->n_row = (uint32_t)tensor->ne[dim];
	rows->width = width;
	rows->stride = tensor->nb[dim];
	return 0;
}

bool hook_rows_on_device(const struct hook_rows *rows, struct gm_hook_device_rows *device)
{
	ggml_backend_dev_t owner;

	if (lies_in_host(rows->tensor))
		return false;
	owner = ggml_backend_buft_get_device(ggml_backend_buffer_get_type(buffer_of(rows->tensor)));
	device->data = rows->tensor->data;
	device->stride = rows->stride;
	device->device = owner ? ggml_backend_dev_name(owner) : ggml_backend_buffer_name(buffer_of(rows->tensor));
	return true;
}

static int grow(char **memory, size_t *size, size_t want, struct gm_error *err)
{
	char *grown;

	if (*size >= want)
		return 0;
	grown = gm_realloc(*memory, want, 1, err);
	if (!grown)
		return GM_ERR_MEMORY;
	*memory = grown;
	*size = want;
	return 0;
}

void *hook_rows_get(const struct hook_rows *rows, struct hook_scratch *scratch, bool read_only, struct gm_error *err)
{
	size_t row = (size_t)rows->width * sizeof(float);
	size_t span = (rows->n_row - 1) * rows->stride + row;
	const char *from = rows->tensor->data;

	if (lies_in_host(rows->tensor)) {
		if (read_only && (rows->stride == row || rows->n_row == 1))
			return rows->tensor->data;
	} else {
		/* one transfer with the gaps is cheaper than one for every row, which each wait for the device */
		if (grow(&scratch->span, &scratch->span_size, span, err) < 0)
			return NULL;
		ggml_backend_tensor_get(rows->tensor, scratch->span, 0, span);
		from = scratch->span;
	}
	if (grow(&scratch->values, &scratch->values_size, rows->n_row * row, err) < 0)
		return NULL;
	for (uint32_t i = 0; i < rows->n_row; i++)
		memcpy(scratch->values + i * row, from + i * rows->stride, row);
	return scratch->values;
}

void hook_rows_set(const struct hook_rows *rows, struct hook_scratch *scratch)
{
	size_t row = (size_t)rows->width * sizeof(float);
	bool in_host = lies_in_host(rows->tensor);
	char *to = in_host ? rows->tensor->data : scratch->span;

	for (uint32_t i = 0; i < rows->n_row; i++)
		memcpy(to + i * rows->stride, scratch->values + i * row, row);
	if (!in_host)
		ggml_backend_tensor_set(rows->tensor, scratch->span, 0, (rows->n_row - 1) * rows->stride + row);
}

void hook_scratch_free(struct hook_scratch *scratch)
{
	free(scratch->values);
	free(scratch->span);
}
