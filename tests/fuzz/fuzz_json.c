/* What is accepted as JSON must print, and read back as the same text. */
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gm_error err = {0};
	struct gm_json *root = gm_json_parse((const char *)data, size, "fuzz", &err);

	if (!root) {
		if (err.code == GM_OK || err.text[0] == '\0')
			abort();
		return 0;
	}
	char *text = gm_json_print(root, false);
	struct gm_json *again = text ? gm_json_parse(text, strlen(text), "fuzz", NULL) : NULL;
	char *second = again ? gm_json_print(again, false) : NULL;
	if (!second || strcmp(text, second) != 0)
		abort();
	free(text);
	free(second);
	gm_json_free(root);
	gm_json_free(again);
	return 0;
}
