/* Result files for the browser's tests: every kind, small, with names that would break a careless page; and one of many rows. */
#ifndef GM_TESTS_BROWSER_SAMPLES_H
#define GM_TESTS_BROWSER_SAMPLES_H

/* Makes results.csv, layers.csv, tokens.csv, stats.csv in a folder: 4 policies at 4 cache sizes. */
void samples_write(const char *folder);

/* results.csv with n rows. */
void samples_write_many(const char *path, int n);

/* The model's name in the samples. */
extern const char samples_model[];

/* The time per token of a policy at a cache size, as in the file. */
double samples_time(int policy, int cache);
double samples_hit_rate(int policy, int cache);
double samples_mass(int policy, int cache);

#endif
