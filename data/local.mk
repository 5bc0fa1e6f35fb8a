# What the program reads at run time; found by CTXBANK_DATA, else where it was installed.
dist_pkgdata_DATA = \
	data/templates.json \
	doc/examples/blue-carbuncle.txt

# Presets of models, used by default: METHOD-FINGERPRINT.json, as calibrate writes them
presetsdir = $(pkgdatadir)/presets
dist_presets_DATA = \
	data/presets/d2o-a12532f12ca88825.json \
	data/presets/d2o-a45d3b1ab287bade.json \
	data/presets/duo-a12532f12ca88825.json \
	data/presets/duo-a45d3b1ab287bade.json \
	data/presets/omnikv-a12532f12ca88825.json \
	data/presets/omnikv-a45d3b1ab287bade.json \
	data/presets/pod-a12532f12ca88825.json \
	data/presets/pod-a45d3b1ab287bade.json \
	data/presets/pyramidkv-a12532f12ca88825.json \
	data/presets/pyramidkv-a45d3b1ab287bade.json \
	data/presets/simlayerkv-a12532f12ca88825.json \
	data/presets/simlayerkv-a45d3b1ab287bade.json
