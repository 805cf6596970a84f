# Short names for what people do here. `make` alone lists them.

CARGO ?= cargo

# Lets the fuzz targets be checked without a C++ compiler: nothing is linked.
FUZZ_CHECK = CUSTOM_LIBFUZZER_PATH=/nonexistent/libfuzzer.a

.DEFAULT_GOAL := help
.PHONY: help try test conclusions test-web rig rig-long test-ceph deb bench fmt lint fuzz

help: ## list these goals
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

try: ## see what Headpond does, on this machine, in a few minutes (no root, no spare disks)
	@scripts/setup
	@echo 'try: building Headpond, once: about four minutes on two processors'
	@$(CARGO) run --profile quick --package headpond -- try

test: ## install the tools that tests use, where possible, and run every test
	@scripts/setup --test
	@$(CARGO) xtask test

conclusions: ## the long tier: what models and engines are known to come to (minutes of simulation)
	@$(CARGO) xtask test --conclusions

test-web: ## look at every kind of page in a browser, wide and narrow (installs chromium)
	@scripts/setup --web
	@$(CARGO) test --quiet --package headpond --test integration -- pages:: the_demo_goes

rig: ## boot a virtual machine with late, missing and shuffled disks, kills and power cuts (half an hour)
	@scripts/setup --rig
	@$(CARGO) xtask rig

KILLS ?= 50
rig-long: ## kill the daemon KILLS times below each kind of mounted file system; goes on where it was
	@scripts/setup --rig
	@$(CARGO) xtask rig --kills $(KILLS)

test-ceph: ## start a Ceph cluster here and break it under volumes on its images (half an hour)
	@scripts/setup --ceph
	@$(CARGO) xtask ceph

deb: ## make the Debian package, of a release that is built now; target/debian gets it
	@scripts/setup --deb
	@$(CARGO) xtask deb

bench: ## measure the hot paths beside their limits and rivals; writes target/bench.json
	@scripts/setup --bench
	@$(CARGO) xtask bench

fmt: ## format the source
	@$(CARGO) fmt --all

lint: ## check format, clippy, licences and the rules of this house
	@$(CARGO) fmt --all --check
	@$(FUZZ_CHECK) $(CARGO) clippy --quiet --locked --workspace --all-targets -- -D warnings
	@$(CARGO) xtask tidy
	@scripts/deny

fuzz: ## feed every reader of foreign bytes with hostile input, for a minute each
	@$(CARGO) xtask fuzz --seconds 60
