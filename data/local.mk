# What the program reads at run time; found by CTXBANK_DATA, else where it was installed.
dist_pkgdata_DATA = \
	data/templates.json \
	doc/examples/blue-carbuncle.txt
