# Drawn by scripts/scaling.sh: dir holds a file of points and a fit (start and slope) for each kind, out is the picture, unit that of the cost.
set terminal svg size 900,300 font "sans,12" background "white"
set output out
set multiplot layout 1,3
set xtics autofreq
set key off
set grid lc rgb "#dddddd"
set xrange [0:*]
set yrange [0:*]
do for [kind in "tokens layers configurations"] {
	fit = system("cat ".dir."/".kind.".fit")
	set xlabel kind
	set ylabel kind eq "tokens" ? unit : ""
	if (kind eq "tokens") { set xtics 100 * ceil(real(system("tail -n 1 ".dir."/tokens | cut -f1")) / 400) } else { set xtics autofreq }
	plot real(word(fit, 1)) + real(word(fit, 2)) * x with lines lc rgb "#999999", dir."/".kind with points pt 7 ps 0.6 lc rgb "#0072b2"
}
unset multiplot
