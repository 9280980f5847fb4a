#include "sim/sweep_page.h"

#include "report/page.h"
#include "traces/stats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Something that can be read again: not standard input or output, a pipe or a device. A file that is not there yet will be one. */
static bool is_file(const char *path)
{
	struct stat st;

	return strcmp(path, "-") != 0 && (stat(path, &st) != 0 || S_ISREG(st.st_mode));
}

int gm_sweep_page_begin(struct gm_sweep_page *page, const char *path[], struct gm_error *err)
{
	static const enum gm_sweep_file needed[] = {GM_FILE_POINTS, GM_FILE_LAYERS};
	static const char *const name[GM_N_SWEEP_FILE] = {"points.csv", "layers.csv", "sequences.csv", "tokens.csv"};
	const char *base = getenv("TMPDIR");

	for (int i = 0; i < GM_N_SWEEP_FILE; i++)
		if (path[i] && !is_file(path[i]))
			return gm_fail(err, GM_ERR_USAGE,
				       "a page needs its data as files: --html beside \"%.60s\": give the file a name",
				       path[i]);
	snprintf(page->folder, sizeof(page->folder), "%.30s/gatemass-page-XXXXXX", base && *base ? base : "/tmp");
	if (!mkdtemp(page->folder)) {
		gm_fail(err, GM_ERR_IO, "cannot make a temporary folder: %s: %s", page->folder, strerror(errno));
		page->folder[0] = '\0';
		return GM_ERR_IO;
	}
	for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++) {
		enum gm_sweep_file file = needed[i];

		if (path[file])
			continue;
		snprintf(page->temporary[file], sizeof(page->temporary[file]), "%s/%s", page->folder, name[file]);
		path[file] = page->temporary[file];
	}
	return GM_OK;
}

static int write_stats(struct gm_sweep_page *page, const char *path, struct gm_error *err)
{
	struct gm_trace *trace = gm_trace_open(path, err);
	struct gm_stats stats;
	int status;

	if (!trace)
		return err->code;
	snprintf(page->stats, sizeof(page->stats), "%s/stats.csv", page->folder);
	status = gm_stats_collect(&stats, trace, err);
	if (status == GM_OK) {
		status = gm_stats_write_csv(&stats, trace, page->stats, err);
		gm_stats_free(&stats);
	}
	gm_trace_close(trace);
	return status;
}

int gm_sweep_page_write(struct gm_sweep_page *page, const char *const path[], const char *trace, const char *out,
			struct gm_error *err)
{
	char *file[GM_N_SWEEP_FILE + 1];
	int n = 0;

	for (int i = 0; i < GM_N_SWEEP_FILE; i++)
		if (path[i])
			file[n++] = (char *)path[i];
	if (is_file(trace)) { /* a pipe was read once already */
		GM_TRY(write_stats(page, trace, err));
		file[n++] = page->stats;
	}
	return gm_report_page(n, file, out, NULL, err);
}

void gm_sweep_page_end(struct gm_sweep_page *page)
{
	if (!page->folder[0])
		return;
	for (int i = 0; i < GM_N_SWEEP_FILE; i++)
		if (page->temporary[i][0])
			unlink(page->temporary[i]);
	if (page->stats[0])
		unlink(page->stats);
	rmdir(page->folder);
	page->folder[0] = '\0';
}
