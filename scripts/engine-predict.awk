# The table and the verdict of scripts/engine-predict.sh, by which it ends with 0 or 1. Variables: limit (per cent), csv (a file for the table, or
# empty). Input, a setting a line: slots, miss rule, admission, fetches, us a token (median, least, most, those of each round with semicolons), then
# fetches and us a token as predicted.

# Whether setting i was slower than j in every round.
function always_slower(i, j,    a, b, n, t) {
	n = split(rounds[i], a, ";")
	split(rounds[j], b, ";")
	for (t = 1; t <= n && a[t] > b[t]; t++);
	return t > n
}
BEGIN {
	printf "%-5s %-15s %-15s %8s %8s  %9s %20s %9s %7s\n", "slots", "miss rule", "admission", "fetches", "of sim",
		"measured", "(least - most)", "predicted", "off"
	if (csv) print "slots,miss,admit,fetches,fetches_sim,measured_us,least_us,most_us,rounds_us,predicted_us" >csv
}
{
	name[NR] = $1 " " $2 " " $3; m[NR] = $5; rounds[NR] = $8; p[NR] = $10
	off = $10 / $5 - 1
	printf "%-5d %-15s %-15s %8d %8d  %9.0f (%8.0f - %8.0f) %9.0f %+6.1f%%\n", $1, $2, $3, $4, $9, $5, $6, $7, $10, 100 * off
	if (csv) print $1 "," $2 "," $3 "," $4 "," $9 "," $5 "," $6 "," $7 "," $8 "," $10 >csv
	worst = off < 0 && -off > worst ? -off : off > worst ? off : worst
	within += off <= limit / 100 && off >= -limit / 100
	if ($10 < $6 * (1 - limit / 100) || $10 > $7 * (1 + limit / 100)) failed = failed "\n  beyond the limit: " name[NR]
	if ($3 == "fetch" && $4 != $9) failed = failed "\n  other work than predicted: " name[NR]
}
END {
	for (i = 1; i <= NR; i++)
		for (j = 1; j <= NR; j++) {
			if (m[i] <= 1.1 * m[j])
				continue
			told = always_slower(i, j)
			n_pair[told]++
			n_right[told] += p[i] > p[j]
			if (told && p[i] <= p[j]) failed = failed "\n  order: " name[i] " was not predicted slower than " name[j]
		}
	printf "%d settings, %d within %g %%, the worst %.1f %% off; order right for %d of %d pairs, and for %d of %d of which the rounds do not tell\n",
		NR, within, limit, 100 * worst, n_right[1], n_pair[1], n_right[0], n_pair[0]
	print NR && !failed ? "holds" : "does not hold:" failed
	exit !NR || failed != ""
}
