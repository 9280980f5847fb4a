/* One line of a router-logits-jsonl file: the numbers of "logits" are read here, everything else by base/json. */
#ifndef GM_TRACES_IMPORT_JSONL_ROW_H
#define GM_TRACES_IMPORT_JSONL_ROW_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Finds the top-level member "logits" of the object in text (NUL-terminated), reads its numbers as float32 and puts a 0 in the
 * list's place, so that the rest can be parsed as JSON without paying for a tree of hundreds of numbers.
 *   logits [n_expert]   out
 *   found               out: false where there is no such member (text is unchanged)
 * Returns GM_OK also where the text is broken elsewhere: the JSON parser says so. Errors: not a list of numbers, more or fewer
 * than n_expert, a number that is not finite as a float32 (named by its expert). where: "FILE: line 7". */
int gm_jsonl_take_logits(char *text, uint32_t n_expert, float *logits, bool *found, const char *where,
			 struct gm_error *err);

#endif
