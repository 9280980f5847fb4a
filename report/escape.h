/* Text made safe for the formats of reports. What is no UTF-8, and control characters that XML forbids, become U+FFFD: file names are
 * bytes of any kind. Write errors are found by gm_output_commit.
 */
#ifndef GM_REPORT_ESCAPE_H
#define GM_REPORT_ESCAPE_H

#include <stddef.h>
#include <stdio.h>

/* Content and attribute values (in double quotes) of HTML, SVG and XML. */
void gm_put_xml(FILE *out, const char *text);

/* A JSON string with its quotes that is also safe inside <script>: "<" and "&" are written as \u003c and \u0026. */
void gm_put_json(FILE *out, const char *text);

/* A cell of a Markdown table: nothing in it is taken for a mark, newlines become <br>. */
void gm_put_markdown(FILE *out, const char *text);

/* Running text of LaTeX. Newlines become spaces. */
void gm_put_latex(FILE *out, const char *text);

/* One line of a terminal: control characters become spaces. Returns the number of columns it takes. */
size_t gm_put_line(FILE *out, const char *text);

/* Columns of a text on a terminal: two for a wide character. */
size_t gm_text_width(const char *text);

#endif
