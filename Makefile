# Glovebox: `make` builds it, `make demo` runs an example. `make help` lists the targets.
BUILD   := build
PREFIX  ?= /usr/local
DESTDIR ?=
JOBS    ?= 2
PARTS   ?=
BENCH   ?=
MINUTES ?= 10

# An empty environment (env -i) has none, and make itself then finds no program.
export PATH ?= /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# tools/setup.sh installs Meson into build/venv if the distribution's version is too old.
MESON   := PATH="$(CURDIR)/$(BUILD)/venv/bin:$$PATH" meson
PYTHON  := $(BUILD)/venv/bin/python
WERROR  := $(if $(filter true 1 yes,$(CI)),-Dwerror=true)

# Printed by a plain `make`, not by the targets that build first.
NEXT    := '' 'Built $(BUILD)/glovebox. Next, type:' \
           '  export PATH="$$PWD/$(BUILD):$$PATH"' \
           "  glovebox run -c 'print(6 * 7)'" \
           '  make demo             a data analysis in a sealed box' \
           '  glovebox doctor       what this host can enforce, and how to fix the rest'

.PHONY: all demo test soak bench bench-check wheel install clean help

all:
	@tools/setup.sh build
	@test -f $(BUILD)/build.ninja || $(MESON) setup $(BUILD) $(WERROR)
	@ninja -C $(BUILD) -j $(JOBS)
	@$(if $(filter-out all,$(MAKECMDGOALS)),:,printf '%s\n' $(NEXT))

demo: all
	@/usr/bin/python3 tools/demo.py

test: all
	@tools/setup.sh test
	@$(PYTHON) tests/run.py $(PARTS)

soak: all
	@tools/setup.sh test
	@$(PYTHON) tests/chaos/storm.py --minutes $(MINUTES)
	@GLOVEBOX_EVERY_CALL_MINUTES=$(MINUTES) $(PYTHON) -m pytest -q -rP tests/chaos/test_every_call.py

bench: all
	@tools/setup.sh bench
	@$(BUILD)/bench-venv/bin/python bench/run.py $(BENCH)

bench-check: all
	@tools/setup.sh bench
	@$(BUILD)/bench-venv/bin/python bench/run.py --check $(BENCH)

wheel: all
	@tools/setup.sh wheel
	@$(PYTHON) tools/wheels.py dist

install: all
	@$(MESON) configure $(BUILD) -Dprefix=$(PREFIX)
	@$(MESON) install -C $(BUILD) $(if $(DESTDIR),--destdir $(DESTDIR))

clean:
	rm -rf build build-asan build-fuzz dist

help:
	@echo "make              install what is missing, build $(BUILD)/glovebox"
	@echo "make demo         build it and run a data analysis in a box"
	@echo "make test         run every test; PARTS='lint unit box' selects parts"
	@echo "make soak         kill the daemon under load for MINUTES=$(MINUTES), at least one round; needs root"
	@echo "make bench        compare it with its peers; BENCH='--quick --only cold' for less"
	@echo "make bench-check  the same, and fail if a promised ratio is missed"
	@echo "make wheel        build the Python package and its runtime, into dist/"
	@echo "make install      install to PREFIX=$(PREFIX), below DESTDIR"
	@echo "make clean        remove the build directories (images in the data directory stay)"
