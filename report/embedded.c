#include "report/embedded.h"

#include <assert.h>
#include <string.h>

const char *gm_embedded(const char *name)
{
	const struct gm_embedded_file *file = gm_embedded_files;

	while (file->name && strcmp(file->name, name) != 0)
		file++;
	assert(file->name);
	return file->text;
}
