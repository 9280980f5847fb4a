/* Files that are built into the program: the page's styles and scripts, the plots' scripts (report/embed.sh, report/part.mk). */
#ifndef GM_REPORT_EMBEDDED_H
#define GM_REPORT_EMBEDDED_H

#include <stddef.h>

struct gm_embedded_file {
	const char *name; /* "page.css" */
	const char *text; /* NUL-terminated */
	size_t size;
};

extern const struct gm_embedded_file gm_embedded_files[]; /* ended by name NULL */

/* The text of a file; it must be there. */
const char *gm_embedded(const char *name);

#endif
