#!/usr/bin/env bash
# tests/ranks/train/test_faults.sh - forty ranks that are killed or stopped; `make test-faults` takes hundreds.
# ctest: TIMEOUT 600 PROCESSORS 2
YK_FAULT_TRIALS=40 YK_FAULT_SEED=1 exec bash "$(dirname "$0")/faults.sh"
