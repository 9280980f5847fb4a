/* Coverage: the names of the branches and the printed table. */
#include "tests/reference/reference.h"

static const char *const branch_names[REF_N_BRANCH] = {
#define REF_BRANCH_NAME(branch, name) [branch] = name,
	REF_BRANCHES(REF_BRANCH_NAME)
#undef REF_BRANCH_NAME
};

const char *ref_branch_name(enum ref_branch branch)
{
	return branch_names[branch];
}

unsigned ref_coverage_print(const struct ref_coverage *coverage, FILE *out)
{
	unsigned n_zero = 0;

	for (unsigned i = 0; i < REF_N_BRANCH; i++) {
		fprintf(out, "%12llu  %s\n", (unsigned long long)coverage->times[i], branch_names[i]);
		if (coverage->times[i] == 0)
			n_zero++;
	}
	return n_zero;
}
