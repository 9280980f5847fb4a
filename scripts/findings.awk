# The page of findings, from the CSV of `report stats` (scripts/findings.sh). Every verdict follows from an interval here; none is written down.

# --- reading ---

# The fields of a CSV line into field[], quotes taken off.
function split_csv(line, field,   n, quoted, text, c, i) {
	n = 1; quoted = 0; text = ""
	for (i = 1; i <= length(line); i++) {
		c = substr(line, i, 1)
		if (quoted && c == "\"" && substr(line, i + 1, 1) == "\"") { text = text c; i++ }
		else if (c == "\"") quoted = !quoted
		else if (c == "," && !quoted) { field[n++] = text; text = "" }
		else text = text c
	}
	field[n] = text
	return n
}

NR == 1 { n_column = split_csv($0, column); next }
{
	split_csv($0, field)
	for (i = 1; i <= n_column; i++) cell[NR, column[i]] = field[i]
	if (cell[NR, "table"] == "change" && !(cell[NR, "cache"] in seen_size)) {
		seen_size[cell[NR, "cache"]] = 1
		size[++n_size] = cell[NR, "cache"]
	}
	n_row = NR
}

# --- looking up ---

# The row of a table about a policy at a size (against another, if it is given), or 0.
function find(table, policy, cache, against, column_name, text,   i) {
	for (i = 2; i <= n_row; i++)
		if (cell[i, "table"] == table && cell[i, "policy"] == policy && cell[i, "cache"] == cache &&
		    (against == "" || cell[i, "against"] == against) && (column_name == "" || cell[i, column_name] == text))
			return i
	return 0
}

# Sets V, L and H: value and interval of a row's column, or of a policy's perplexity against another's.
function take(row, name) {
	V = cell[row, name] + 0; L = cell[row, name "_low"] + 0; H = cell[row, name "_high"] + 0
	return row
}
function other_way(v) { return 100 * (100 / (100 + v) - 1) }
function pair(a, b, cache,   row, low) {
	if (take(find("pair", a, cache, b), "perplexity_change_pct")) return 1
	row = find("pair", b, cache, a)
	if (!row) return 0
	take(row, "perplexity_change_pct")
	low = L; V = other_way(V); L = other_way(H); H = other_way(low)
	return 1
}
function change(policy, cache) { return take(find("change", policy, cache), "perplexity_change_pct") }
function group(name, cache,   i) {
	for (i = 2; i <= n_row; i++)
		if (cell[i, "table"] == "mass_policies" && cell[i, "group"] == name && cell[i, "group_cache"] == cache) return i
	return 0
}

# --- saying ---

function percent(v) { return sprintf("%+.2f %%", v) }
function points(v) { return v > -0.005 && v < 0.005 ? "0.00" : sprintf("%+.2f", v) }
function share(v) { return sprintf("%.1f %%", 100 * v) }
function interval() { return percent(V) " [" percent(L) ", " percent(H) "]" }
function plain() { return sprintf("%.2f [%.2f, %.2f]", V, L, H) }

# Does the interval lie on the side that the paper says?
function verdict(sign) {
	if (sign * L > 0 && sign * H > 0) return "agrees"
	if (sign * L < 0 && sign * H < 0) return "**disagrees**"
	return "open: the interval holds 0"
}
function row(number, claim, paper, where, here, judgement) {
	print "| " number " | " claim " | " paper " | " where " | " here " | " judgement " |"
}

function finding_1(c, where,   unprotected, vu, lu, hu, here) {
	unprotected = "substitute + lfu + background:0.5"
	if (!change(unprotected, c)) return
	vu = V; lu = L; hu = H
	here = "perplexity " interval()
	change("quality-first", c)
	here = here " against " interval() "; picks substituted " share(cell[find("change", unprotected, c), "substituted_rate"]) " against " \
		share(cell[find("change", "quality-first", c), "substituted_rate"])
	row(1, "Protecting first choices and weights of at least 0.15 takes away most of the loss, though nearly as many picks are substituted (both with background admission)", \
		"+5.67 % → +0.35 %; picks 8.5 % → 7.5 %", where, here, \
		lu <= 0 ? "open: without protection there is no loss for sure" : H < lu / 2 ? "agrees" : L > hu / 2 ? "**disagrees**" : "open: the intervals allow more and less than half")
}

# Both coefficients are judged: they need not agree.
function compared(coefficient, kept, lost, where,   low, value, before) {
	take(kept, coefficient); low = L; value = V; before = plain()
	take(lost, coefficient)
	row("", "... but mass tells less among policies that substitute first choices (" (coefficient == "pearson" ? "Pearson" : "Spearman") ")", "yes", where, \
		plain() " over " cell[lost, "n_policy"] " policies against " before " where they are fetched", \
		H < low ? "agrees" : L >= value ? "**disagrees**" : "open: the intervals overlap")
}

function finding_2(c, where,   kept, lost, n, inside, i, names, list, here, p) {
	kept = group("first choices always fetched", c); lost = group("first choices may be lost", c)
	if (take(kept, "pearson"))
		row(2, "Where first choices are always fetched, more substituted mass goes with more perplexity", "Pearson 0.92", where, \
			"Pearson " plain() " over " cell[kept, "n_policy"] " policies", verdict(1))
	if (kept && lost) {
		compared("pearson", kept, lost, where)
		compared("spearman", kept, lost, where)
	}
	here = ""
	n = split("rule-0.15 quality-first first-choice speed-first", list, " ")
	for (i = 1; i <= n; i++) {
		p = find("mass_texts", list[i], c)
		if (!p) continue
		take(p, "pearson")
		here = here (here == "" ? "" : "; ") list[i] " " plain()
		names++; inside += L <= 0 && H >= 0
	}
	if (names)
		row("", "... and does not predict which texts lose (Pearson over the texts)", "no", where, here, \
			inside == names ? "agrees: all intervals hold 0" : inside == 0 ? "**disagrees**: no interval holds 0" : "in part: " inside " of " names " intervals hold 0")
}

# Masses that are not equal decide nothing, unless the heavy ones had even less and hurt more.
function composition(i,   equal, less) {
	equal = cell[i, "equal"] == "yes"
	less = cell[i, "mass_difference_high"] < 0
	take(i, "perplexity_change_pct")
	return equal ? verdict(1) : less && L > 0 ? "agrees: with even less mass" : "none: the masses are not equal"
}

function finding_3(c, where,   i, judgement) {
	for (i = 2; i <= n_row; i++) {
		if (cell[i, "table"] != "compose_pair" || cell[i, "cache"] != c) continue
		if (cell[i, "policy"] !~ /compose:heavy/ || cell[i, "against"] !~ /compose:light/) continue
		judgement = composition(i)
		row(3, "The same mass by few heavy substitutions hurts more than by many light ones", "yes; no formal verdict", where, \
			"mass " share(cell[i, "target_mass"]) ": heavy against light " interval() "; heavy less light mass " \
			sprintf("%+.2f %%", 100 * cell[i, "mass_difference"] / cell[i, "target_mass"]) " of it", judgement)
	}
}

function finding_4(c, where) {
	if (pair("quality-first", "rule-0.15", c))
		row(4, "Background admission β = 0.5 lowers the perplexity of the 0.15 rule", "−0.3 … −1.5 %", where, interval(), verdict(-1))
	if (pair("speed-first", "first-choice", c))
		row("", "... and that of the first-choice rule", "", where, interval(), verdict(-1))
	if (take(find("switch_contrast", "quality-first", c, "rule-0.15", "contrast", "first 64 less later"), "nll_difference"))
		row("", "... most right after topic changes: first 64 tokens less later ones, difference of the NLL's change (0.15 rule)", "yes", where, \
			sprintf("%+.4f [%+.4f, %+.4f]", V, L, H), verdict(-1))
	if (take(find("switch_contrast", "speed-first", c, "first-choice", "contrast", "first 64 less later"), "nll_difference"))
		row("", "... the same with the first-choice rule", "yes", where, sprintf("%+.4f [%+.4f, %+.4f]", V, L, H), verdict(-1))
}

function finding_5(c, where) {
	if (change("quality-first", c))
		row(5, "Quality-first costs perplexity against fetching every miss", "+0.7 … +1.5 % (with Speed-first)", where, interval(), verdict(1))
	if (change("speed-first", c))
		row("", "... and so does Speed-first", "", where, interval(), verdict(1))
	if (pair("quality-first", "rule-0.15", c))
		row("", "Quality-first against the 0.15 rule alone", "−0.5 … −0.8 %", where, interval(), verdict(-1))
	if (pair("speed-first", "rule-0.15", c))
		row("", "Speed-first against the 0.15 rule alone: no significant rise", "none", where, interval(), L > 0 ? "**disagrees**" : "agrees")
}

function order(c, where,   i, list, n, all, bad, here) {
	n = split("fetch-all quality-first rule-0.15 substitute-all", list, " ")
	for (i = 1; i < n; i++) {
		if (!pair(list[i + 1], list[i], c)) return
		here = here (i > 1 ? "; " : "") list[i + 1] " against " list[i] " " interval()
		all += L > 0; bad += H < 0
	}
	row("", "Order of perplexity: fetch-all ≤ quality-first ≤ rule-0.15 ≤ substitute-all", "implied", where, here, \
		bad ? "**disagrees** at " bad " of 3 steps" : all == 3 ? "agrees" : "in part: " all " of 3 steps are sure, none is turned round")
}

function where_is(c) { return c " resident" }

function findings(   i) {
	print "| # | finding | paper | cache | here | verdict |\n|---|---|---|---|---|---|"
	for (i = 1; i <= n_size; i++) finding_1(size[i], where_is(size[i]))
	for (i = 1; i <= n_size; i++) finding_2(size[i], where_is(size[i]))
	for (i = 1; i <= n_size; i++) finding_3(size[i], where_is(size[i]))
	for (i = 1; i <= n_size; i++) finding_4(size[i], where_is(size[i]))
	for (i = 1; i <= n_size; i++) finding_5(size[i], where_is(size[i]))
	row("", "Both 2.5–3.0× faster a token than fetching every miss; Speed-first ~5 % faster than the 0.15 rule", "two hosts, RTX 3090", "", \
		"needs a large model and its host: `sim sweep MODEL.gmt --policy fetch-all,rule-0.15,quality-first,speed-first --hw PROFILE.json` estimates it from a recording and `probe-machine`'s profile", "not tested here")
	row(6, "At 16 GB of free RAM the 0.15 rule decodes 2.8–3.0× faster than stock llama.cpp at equal VRAM, perplexity +1.6 %", "one host", "", \
		"needs that host: `sim sweep MODEL.gmt --policy rule-0.15,stock-ncmoe:N --hw PROFILE.json` with `disk_gb_s` and `host_expert_bytes` in the profile estimates the time", "not tested here")
	for (i = 1; i <= n_size; i++)
		if (change("rule-0.15", size[i]))
			row("", "... the 0.15 rule costs perplexity", "+1.6 %", where_is(size[i]), interval(), verdict(1))
	row(7, "Generation (GSM8K, HumanEval) supports the predictions only in part", "", "", \
		"needs a model that can do such tasks: `emulate -m MODEL.gguf --prompts gsm8k.jsonl --generate -n 256 --policy fetch-all,quality-first,speed-first --csv OUT.csv --continuations TEXTS.csv`", "not tested here")
	for (i = 1; i <= n_size; i++) order(size[i], where_is(size[i]))
}

# --- tables of everything ---

function header(names, right,   i, n, list, line) {
	n = split(names, list, "|")
	gsub(/[|]/, " | ", names)
	line = ""
	for (i = 1; i <= n; i++) line = line "|" (i > right ? "---:" : "---")
	print "\n| " names " |\n" line "|"
}

function changes(   i) {
	header("policy|cache|substituted picks|lost mass|perplexity|change", 2)
	for (i = 2; i <= n_row; i++)
		if (cell[i, "table"] == "change") {
			take(i, "perplexity_change_pct")
			printf "| %s | %s | %s | %s | %.3f | %s |\n", cell[i, "policy"], cell[i, "cache"], share(cell[i, "substituted_rate"]), \
				share(cell[i, "lost_mass"]), cell[i, "perplexity"], interval()
		}
}

function correlations(   i, here) {
	header("policies|cache|number|Pearson|Spearman", 2)
	for (i = 2; i <= n_row; i++)
		if (cell[i, "table"] == "mass_policies") {
			take(i, "pearson"); here = plain(); take(i, "spearman")
			print "| " cell[i, "group"] " | " cell[i, "group_cache"] " | " cell[i, "n_policy"] " | " here " | " plain() " |"
		}
	print "\nSpearman's rho compares orders only; Pearson's r follows the largest values, such as those of `substitute-all`, which never fills a cache that starts cold. Most policies that may\nlose first choices are the `compose` rules, made to lose equal mass.\n\nOver the texts, under one preset:"
	header("policy|cache|texts|Pearson|Spearman", 2)
	for (i = 2; i <= n_row; i++)
		if (cell[i, "table"] == "mass_texts" && cell[i, "policy"] !~ / [+] /) {
			take(i, "pearson"); here = plain(); take(i, "spearman")
			print "| " cell[i, "policy"] " | " cell[i, "cache"] " | " cell[i, "n_sequence"] " | " here " | " plain() " |"
		}
}

function compositions(   i, here) {
	header("rule|cache|target|mass reached|within 2 %|substituted picks|perplexity", 2)
	for (i = 2; i <= n_row; i++)
		if (cell[i, "table"] == "compose") {
			take(i, "lost_mass")
			here = sprintf("%.2f %% [%.2f %%, %.2f %%]", 100 * V, 100 * L, 100 * H)
			take(i, "perplexity_change_pct")
			print "| " cell[i, "policy"] " | " cell[i, "cache"] " | " share(cell[i, "target_mass"]) " | " here " | " cell[i, "reached"] " | " \
				share(cell[i, "substituted_rate"]) " | " interval() " |"
		}
}

function switches(   i, here) {
	header("policy|against|cache|place|tokens away|tokens|lost mass|perplexity", 5)
	for (i = 2; i <= n_row; i++)
		if (cell[i, "table"] == "switch" && cell[i, "against"] != "baseline") {
			take(i, "lost_mass")
			here = sprintf("%.2f %% [%.2f %%, %.2f %%]", 100 * V, 100 * L, 100 * H)
			take(i, "perplexity_change_pct")
			print "| " cell[i, "policy"] " | " cell[i, "against"] " | " cell[i, "cache"] " | " cell[i, "place"] " | " cell[i, "distance"] " | " \
				cell[i, "n_token"] " | " here " | " interval() " |"
		}
	print ""
	print "NLL changes of the first 64 tokens after a switch, less those of later tokens, and less those of the first 64 tokens of texts"
	print "that go on with the topic:"
	header("policy|against|cache|difference|NLL", 4)
	for (i = 2; i <= n_row; i++)
		if (cell[i, "table"] == "switch_contrast") {
			take(i, "nll_difference")
			printf "| %s | %s | %s | %s | %+.4f [%+.4f, %+.4f] |\n", cell[i, "policy"], cell[i, "against"], cell[i, "cache"], cell[i, "contrast"], V, L, H
		}
}

function open_loop(   i, n, list, k, worst, e) {
	n = split("hit_rate substituted_rate lost_mass", list, " ")
	header("policy|cache|hits: open|closed|error|substituted picks: open|closed|error|lost mass: open|closed|error", 2)
	for (i = 2; i <= n_row; i++) {
		if (cell[i, "table"] != "open_loop") continue
		printf "| %s | %s |", cell[i, "policy"], cell[i, "cache"]
		for (k = 1; k <= n; k++) {
			e = 100 * cell[i, list[k] "_error"]
			printf " %.2f | %.2f | %s |", 100 * cell[i, list[k] "_open"], 100 * cell[i, list[k] "_closed"], points(e)
			if ((e < 0 ? -e : e) > worst[k]) worst[k] = e < 0 ? -e : e
		}
		print ""
	}
	printf "\nLargest errors, in points: hits %.2f, substituted picks %.2f, lost mass %.2f.\n", worst[1], worst[2], worst[3]
}

END {
	for (i = 2; i <= n_row; i++)
		if (cell[i, "table"] == "change") { n_text = cell[i, "n_sequence"]; n_scored = cell[i, "n_scored"] }
	print "# Findings"
	print ""
	print "What the paper *Which Expert Misses Are Worth Waiting For? Substitution and Caching for Mixture-of-Experts Inference on a Consumer GPU* found about substitution, tried on a model at hand. **This page is made by `" command "`** and by nothing else: the"
	print "verdicts follow from the intervals of this run."
	print ""
	printf "Model %s, %s experts a layer; %s: %s texts, %s tokens, of which %s are scored; perplexity without any policy %.4f. Exact outputs\n", \
		model, n_expert, texts, n_text, tokens, n_scored, baseline
	print "by [emulation](emulator.md); changes in percent against the model without a policy, or against the policy that is named. In brackets: 95 %"
	printf "intervals by paired bootstrap over the texts (%s samples, seed %s; [method](reports.md#statistics-of-an-emulation)). They say how sure a number is for\n", samples, seed
	print "texts like these, not for other models. " program "."
	print ""
	print "Two cache sizes: a quarter of the experts, and the size at which the 0.15 rule, replayed, substitutes nearest to 8 % of the picks, which is"
	print "the paper's regime. The caches start cold."
	print ""
	print "*agrees*, *disagrees*: the whole interval lies on the side that the paper says, or on the other; *open*: it lies on both. Only the side is judged:"
	print "how large an effect is depends on the model. Of twenty intervals of nothing, one leaves out 0 by chance."
	print ""
	findings()
	print "\n## All policies"
	changes()
	print "\n## Mass and perplexity\n\nPolicies that lose mass, on the same texts. First choices are always fetched by `threshold`, `first-choice` and `drop`."
	correlations()
	print "\n## The same mass, made up otherwise\n\nRules `compose` ([emulator](emulator.md)) at an eighth and a quarter of the mass that the 0.15 rule gives away."
	compositions()
	print "\n## Topic switches\n\nWith background admission against without, by tokens since the last switch, and since the beginning of texts that go on with the topic of the text before."
	switches()
	print "\n## Open loop against closed loop\n\nThe simulator replays a recording of the undisturbed model; the emulator lets every substitution change what later layers and tokens"
	print "ask for. In percent."
	open_loop()
}
