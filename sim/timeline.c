#include "sim/timeline.h"

#include "base/number.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const lanes[] = {"GPU", "link", "CPU", "disk"}; /* enum gm_lane */

static void put_string(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fprintf(out, "\\%c", *text);
		else if ((unsigned char)*text < 0x20)
			fprintf(out, "\\u%04x", (unsigned)*text);
		else
			fputc(*text, out);
	}
	fputc('"', out);
}

/* Perfetto rounds ts and dur to whole ns, each for itself, and drops a span that then runs into the next one of its lane. So the ends are
 * rounded here and the length is what lies between them: spans that meet in the model meet in the file. */
static void put_span(void *user, const struct gm_span *span)
{
	FILE *out = ((struct gm_timeline *)user)->stream;
	double start_ns = round(span->start_us * 1e3), end_ns = round(span->end_us * 1e3);
	char start[GM_NUMBER_TEXT], length[GM_NUMBER_TEXT];

	fprintf(out, ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%s,\"dur\":%s,\"pid\":1,\"tid\":%d,\"args\":{",
		span->what, lanes[span->lane], gm_format_double(start_ns / 1e3, start),
		gm_format_double((end_ns - start_ns) / 1e3, length), (int)span->lane + 1);
	if (span->layer != UINT32_MAX)
		fprintf(out, "\"layer\":%" PRIu32, span->layer);
	if (span->expert != UINT32_MAX)
		fprintf(out, "%s\"expert\":%" PRIu32, span->layer != UINT32_MAX ? "," : "", span->expert);
	fputs("}}", out);
}

int gm_timeline_tokens(const char *text, uint64_t *from, uint64_t *to, struct gm_error *err)
{
	const char *dots = strstr(text, "..");
	char first[24];

	if (dots && (size_t)(dots - text) < sizeof(first)) {
		snprintf(first, sizeof(first), "%.*s", (int)(dots - text), text);
		if (gm_parse_u64(first, "", 0, UINT64_MAX - 1, from, NULL) == GM_OK &&
		    gm_parse_u64(dots + 2, "", 0, UINT64_MAX - 1, to, NULL) == GM_OK && *from <= *to)
			return GM_OK;
	}
	return gm_fail(err, GM_ERR_USAGE, "not a range of tokens: --trace-tokens \"%.60s\": give FROM..TO, such as 0..15",
		       text);
}

void gm_timeline_begin(struct gm_timeline *timeline, FILE *stream, const char *title)
{
	*timeline = (struct gm_timeline){.stream = stream, .sink = {.span = put_span, .user = timeline}};
	/* no displayTimeUnit: ts and dur are in us by default, and some versions of Perfetto take it for their unit */
	fputs("{\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{"
	      "\"name\":",
	      stream);
	put_string(stream, title);
	fputs("}}", stream);
	for (int lane = 0; lane < (int)(sizeof(lanes) / sizeof(*lanes)); lane++)
		fprintf(stream,
			",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":\"%s\"}}"
			",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"args\":{\"sort_index\":%d}"
			"}",
			lane + 1, lanes[lane], lane + 1, lane + 1);
}

void gm_timeline_end(struct gm_timeline *timeline)
{
	fputs("\n]}\n", timeline->stream);
}
