/* The pages that --help prints: the part of options.h that only options.c uses. */
#ifndef GM_BASE_OPTIONS_HELP_H
#define GM_BASE_OPTIONS_HELP_H

#include "base/options.h"

#include <stddef.h>

/* Option i of all of a command's tables, NULL past the end. */
const struct gm_option *gm_command_option(const struct gm_command *command, size_t i);

/* "sim run": the program's and the command's name; command may be NULL. */
void gm_command_line(const char *invoked, const struct gm_command *command, char *out, size_t size);

void gm_print_program_help(const struct gm_program *program, const char *invoked);
void gm_print_command_help(const struct gm_program *program, const struct gm_command *command, const char *invoked);

#endif
