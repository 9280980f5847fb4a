# What all figures share: colours that people who do not see red or green as others do can tell apart (Okabe and Ito), thin axes, quiet grid.
set encoding utf8
set termoption noenhanced
set datafile separator tab
set datafile missing ""
set border 3 lc rgb "#606a73" lw 0.7
set tics nomirror out scale 0.6
set grid lc rgb "#dde2e7" lw 0.5 lt 1
set key above left Left reverse samplen 1.6 spacing 1.0 width -1 noenhanced
set style line 1 lc rgb "#0072B2" pt 7 ps 0.55 lw 1.4
set style line 2 lc rgb "#D55E00" pt 5 ps 0.5 lw 1.4
set style line 3 lc rgb "#009E73" pt 9 ps 0.6 lw 1.4
set style line 4 lc rgb "#CC79A7" pt 13 ps 0.6 lw 1.4
set style line 5 lc rgb "#E69F00" pt 11 ps 0.6 lw 1.4
set style line 6 lc rgb "#56B4E9" pt 2 ps 0.5 lw 1.4
set style line 7 lc rgb "#30363C" pt 1 ps 0.5 lw 1.4
set style line 8 lc rgb "#98A1AA" pt 6 ps 0.5 lw 1.4
style_of(i) = i < 7 ? i + 1 : 8
