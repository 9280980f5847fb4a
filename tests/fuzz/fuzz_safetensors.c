/* libFuzzer: `traces import --format safetensors`.
 *
 * The first byte of an input says how the rest is treated: bit 0 puts the length of the rest, but for the last 64 bytes, before it as
 * the header's (else few inputs have a header at all), bit 1 names the tensors by a pattern. */
#include "traces/import_common.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gm_import_options options = {
		.output = "/dev/null", .gating = "softmax", .top_k = 1, .tail = GM_TAIL_F16, .quiet = true};
	struct gm_error err = {0};
	struct gm_feed *feed;
	char path[40];
	int fd;

	if (size < 1)
		return 0;
	fd = memfd_create("fuzz", 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (data[0] & 1) {
		uint64_t length = size - 1 > 64 ? size - 1 - 64 : 0;

		if (write(fd, &length, sizeof(length)) != sizeof(length))
			return 0;
	}
	if (data[0] & 2)
		options.tensors = "a*";
	if (write(fd, data + 1, size - 1) == (ssize_t)(size - 1) && (feed = gm_feed_open(path, &err))) {
		gm_import_safetensors(feed, &options, &err);
		gm_feed_close(feed);
	}
	close(fd);
	return 0;
}
