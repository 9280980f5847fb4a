#include "traces/import_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#define CHUNK_BYTES ((size_t)256 << 10)
#define MAGIC_BYTES 4

struct gm_feed {
	const char *name;
	int fd;
	bool own_fd;
	uint64_t size, taken;

	unsigned char *raw; /* [CHUNK_BYTES] as stored: raw[raw_at .. raw_end) is not used yet */
	size_t raw_at, raw_end;
	bool raw_eof;

	ZSTD_DStream *zstd; /* NULL: the file is plain */
	bool inside_frame;

	char *text; /* lines: text[text_at .. text_end) is not handed out yet; NUL after a line that was */
	size_t text_at, text_end, text_size;
	bool text_eof;
	uint64_t line;

	FILE *stream;
	struct gm_error failure; /* of a read through the stream */
};

static int fill_raw(struct gm_feed *input, struct gm_error *err)
{
	size_t kept = input->raw_end - input->raw_at;

	memmove(input->raw, input->raw + input->raw_at, kept);
	input->raw_at = 0;
	input->raw_end = kept;
	while (!input->raw_eof) {
		ssize_t n = read(input->fd, input->raw + input->raw_end, CHUNK_BYTES - input->raw_end);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return gm_fail(err, GM_ERR_IO, "cannot read: %s: %s", input->name, strerror(errno));
		input->raw_eof = n == 0;
		input->raw_end += (size_t)n;
		input->taken += (uint64_t)n;
		/* The magic must be whole before it is looked at; after that any bytes will do. */
		if (n == 0 || input->raw_end >= MAGIC_BYTES)
			break;
	}
	return GM_OK;
}

static int open_file(struct gm_feed *input, const char *path, struct gm_error *err)
{
	struct stat st;

	input->fd = STDIN_FILENO;
	input->name = "standard input";
	if (strcmp(path, "-") != 0) {
		input->name = path;
		input->fd = open(path, O_RDONLY | O_CLOEXEC);
		if (input->fd < 0)
			return gm_fail(err, GM_ERR_IO, "cannot open: %s: %s", path, strerror(errno));
		input->own_fd = true;
	}
	if (fstat(input->fd, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			return gm_fail(err, GM_ERR_IO, "cannot read: %s: a folder, not a file", input->name);
		if (S_ISREG(st.st_mode))
			input->size = (uint64_t)st.st_size;
	}
	return GM_OK;
}

struct gm_feed *gm_feed_open(const char *path, struct gm_error *err)
{
	static const unsigned char magic[MAGIC_BYTES] = {0x28, 0xb5, 0x2f, 0xfd};
	struct gm_feed *input = gm_alloc(1, sizeof(*input), err);
	int status = GM_ERR_MEMORY;

	if (!input)
		return NULL;
	GM_TRY_OUT(open_file(input, path, err));
	input->raw = gm_alloc(CHUNK_BYTES, 1, err);
	GM_TRY_OUT(input->raw ? GM_OK : GM_ERR_MEMORY);
	GM_TRY_OUT(fill_raw(input, err));
	if (input->raw_end >= MAGIC_BYTES && memcmp(input->raw, magic, MAGIC_BYTES) == 0) {
		input->zstd = ZSTD_createDStream();
		if (!input->zstd)
			GM_TRY_OUT(gm_fail(err, GM_ERR_MEMORY, "out of memory: zstd decoder"));
		input->inside_frame = true;
	}
out:
	if (status < 0) {
		gm_feed_close(input);
		return NULL;
	}
	return input;
}

void gm_feed_close(struct gm_feed *input)
{
	if (!input)
		return;
	if (input->stream)
		fclose(input->stream);
	if (input->own_fd)
		close(input->fd);
	ZSTD_freeDStream(input->zstd);
	free(input->raw);
	free(input->text);
	free(input);
}

const char *gm_feed_name(const struct gm_feed *input)
{
	return input->name;
}

uint64_t gm_feed_size(const struct gm_feed *input)
{
	return input->size;
}

uint64_t gm_feed_taken(const struct gm_feed *input)
{
	return input->taken;
}

bool gm_feed_compressed(const struct gm_feed *input)
{
	return input->zstd != NULL;
}

static size_t take_plain(struct gm_feed *input, unsigned char *to, size_t size)
{
	size_t n = input->raw_end - input->raw_at;

	if (n > size)
		n = size;
	memcpy(to, input->raw + input->raw_at, n);
	input->raw_at += n;
	return n;
}

/* Decodes from the raw chunk; *n may be 0 while the decoder wants more. */
static int take_zstd(struct gm_feed *input, unsigned char *to, size_t size, size_t *n, struct gm_error *err)
{
	ZSTD_inBuffer in = {input->raw, input->raw_end, input->raw_at};
	ZSTD_outBuffer out = {to, size, 0};
	size_t left = ZSTD_decompressStream(input->zstd, &out, &in);

	if (ZSTD_isError(left))
		return gm_fail(err, GM_ERR_FORMAT, "damaged zstd data: %s: %s", input->name, ZSTD_getErrorName(left));
	/* A frame may be followed by another; between them the decoder owes nothing. */
	input->inside_frame = left != 0;
	input->raw_at = in.pos;
	*n = out.pos;
	return GM_OK;
}

int gm_feed_read(struct gm_feed *input, void *buffer, size_t size, size_t *got, struct gm_error *err)
{
	unsigned char *to = buffer;
	size_t done = 0;

	while (done < size) {
		size_t n = 0;

		if (input->raw_at == input->raw_end && !input->raw_eof)
			GM_TRY(fill_raw(input, err));
		bool dry = input->raw_at == input->raw_end;

		if (input->zstd && (!dry || input->inside_frame))
			GM_TRY(take_zstd(input, to + done, size - done, &n, err));
		else if (!dry)
			n = take_plain(input, to + done, size - done);
		done += n;
		if (dry && n == 0) {
			if (input->zstd && input->inside_frame)
				return gm_fail(err, GM_ERR_FORMAT, "the zstd data is cut off: %s: fetch the file again",
					       input->name);
			break;
		}
	}
	*got = done;
	return GM_OK;
}

/* Makes room behind text_end and reads more text. */
static int fill_text(struct gm_feed *input, struct gm_error *err)
{
	size_t got = 0;

	if (input->text_at > 0) {
		memmove(input->text, input->text + input->text_at, input->text_end - input->text_at);
		input->text_end -= input->text_at;
		input->text_at = 0;
	}
	if (input->text_end > GM_MAX_LINE)
		return gm_fail(err, GM_ERR_FORMAT, "a line of more than 64 MiB: %s: line %llu: is this a text file?",
			       input->name, (unsigned long long)input->line + 1);
	/* One byte more than is ever filled: room for the NUL of a last line without a line end. */
	if (input->text_size < input->text_end + CHUNK_BYTES + 1) {
		size_t size = input->text_end * 2 + CHUNK_BYTES + 1;
		char *text = gm_realloc(input->text, size, 1, err);

		if (!text)
			return GM_ERR_MEMORY;
		input->text = text;
		input->text_size = size;
	}
	size_t room = input->text_size - 1 - input->text_end;

	GM_TRY(gm_feed_read(input, input->text + input->text_end, room < CHUNK_BYTES ? room : CHUNK_BYTES, &got, err));
	input->text_end += got;
	input->text_eof = got == 0;
	return GM_OK;
}

int gm_feed_line(struct gm_feed *input, char **line, size_t *size, struct gm_error *err)
{
	size_t searched = 0;
	char *end;

	for (;;) {
		size_t have = input->text_end - input->text_at;

		end = have > searched ? memchr(input->text + input->text_at + searched, '\n', have - searched) : NULL;
		if (end)
			break;
		if (input->text_eof && have == 0)
			return 0;
		if (input->text_eof) {
			end = input->text + input->text_end;
			break;
		}
		searched = have;
		GM_TRY(fill_text(input, err));
	}
	char *begin = input->text + input->text_at;
	size_t n = (size_t)(end - begin);

	input->line++;
	input->text_at += n < input->text_end - input->text_at ? n + 1 : n;
	if (n > GM_MAX_LINE)
		return gm_fail(err, GM_ERR_FORMAT, "a line of more than 64 MiB: %s: line %llu: is this a text file?",
			       input->name, (unsigned long long)input->line);
	if (memchr(begin, '\0', n))
		return gm_fail(err, GM_ERR_FORMAT, "a NUL byte: %s: line %llu: is this a text file?", input->name,
			       (unsigned long long)input->line);
	if (n > 0 && begin[n - 1] == '\r')
		n--;
	begin[n] = '\0';
	*line = begin;
	*size = n;
	return 1;
}

uint64_t gm_feed_line_number(const struct gm_feed *input)
{
	return input->line;
}

static ssize_t stream_read(void *cookie, char *buffer, size_t size)
{
	struct gm_feed *input = cookie;
	size_t got = input->text_end - input->text_at;

	/* First what the line reader has taken too much. */
	if (got > 0) {
		got = got < size ? got : size;
		memcpy(buffer, input->text + input->text_at, got);
		input->text_at += got;
		return (ssize_t)got;
	}
	if (gm_feed_read(input, buffer, size, &got, &input->failure) < 0) {
		errno = EIO;
		return -1;
	}
	return (ssize_t)got;
}

FILE *gm_feed_stream(struct gm_feed *input, struct gm_error *err)
{
	cookie_io_functions_t io = {.read = stream_read};

	if (!input->stream) {
		input->stream = fopencookie(input, "r", io);
		if (!input->stream)
			gm_fail(err, GM_ERR_MEMORY, "cannot open a stream: %s: %s", input->name, strerror(errno));
	}
	return input->stream;
}

int gm_feed_failure(struct gm_feed *input, int status, struct gm_error *err)
{
	if (input->failure.code == GM_OK)
		return status;
	if (err)
		*err = input->failure;
	return input->failure.code;
}
