# make         sets up .venv (python3-venv is fetched by root where it is missing)
# make demo    a parallel program from a bare clone, watched, and nothing left of it
# make docs    the documentation as a site in build/site, which `mesh docs` opens
# make release wheel and sdist in dist/, tried in clean environments
# make test    the whole suite; fetches the servers it tests against where root may
SHELL := /bin/bash
.DEFAULT_GOAL := all
CHECKS := check-types check-pages check-messages check-python check-style check-imports
.PHONY: all demo docs release test check storm bench screenshots clean $(CHECKS)

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
DEV := $(VENV)/.dev
# where PYTHONDONTWRITEBYTECODE is set, every start would compile everything it loads
COMPILE := $(PY) -m compileall -q agents console db redmesh simulated

all: $(READY)
	@echo "ready: $(VENV)/bin/yod -sz 2 hostname"

$(READY): pyproject.toml redmesh/version.py constraints.txt bin/mesh bin/pingd bin/showmesh bin/yod
	@tools/venv.sh $(VENV) .

# not after $(READY), which it makes too: each installation fetches what builds the package
$(DEV): pyproject.toml redmesh/version.py constraints.txt bin/mesh bin/pingd bin/showmesh bin/yod
	@tools/venv.sh $(VENV) '.[dev]'

demo: $(READY)
	@$(COMPILE)
	@$(VENV)/bin/mesh demo

docs: $(DEV)
	@$(PY) tools/documentation.py

release: $(DEV)
	@tools/venv.sh $(VENV) '.[dev,release]'
	@$(PY) tools/release.py

test: $(DEV)
	@$(COMPILE)
	@tools/test.sh $(PY) $(TESTS)

# two at a time, the longest first
check: $(DEV)
	@$(MAKE) --no-print-directory -j 2 -O $(CHECKS)

check-types: $(DEV)
	@$(VENV)/bin/mypy

check-pages: $(DEV)
	@$(PY) tools/documentation.py >/dev/null
	@$(PY) tools/check_pages.py
	@$(PY) tools/settings_page.py

check-messages: $(DEV)
	@$(PY) tools/message_codes.py

check-python: $(DEV)
	@$(VENV)/bin/vermin -q --no-tips -t=3.9- --violations redmesh/__init__.py redmesh/answers.py redmesh/byte_text.py redmesh/filesystem.py redmesh/idset.py redmesh/managers.py redmesh/sanitise.py redmesh/settings redmesh/state.py redmesh/state_graph.py redmesh/state_reader.py redmesh/text.py redmesh/version.py agents/wire agents/link agents/linux agents/pct agents/job agents/objects agents/keeper agents/managers agents/yodio console/deploy/ssh/bootstrap.py console/deploy/agent/archive.py console/deploy/agent/compiling.py agents/pmix

check-style: $(DEV)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/codespell README.md CONTRIBUTING.md SECURITY.md CITATION.cff CHANGELOG.md docs examples agents console db redmesh simulated tools bin

check-imports: $(DEV)
	@$(VENV)/bin/lint-imports

# what chooses at random, for longer and with new choices; before an issue is closed
storm: $(DEV)
	@$(COMPILE)
	REDMESH_LONG=1 $(PY) -m pytest -m "storm or hypothesis" --timeout 1800 tests
	$(PY) -m tests.storm --minutes 15

bench: $(DEV)
	@$(COMPILE)
	@$(PY) -m tests.bench

screenshots: $(DEV)
	@$(PY) -m tests.support.screenshots

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
