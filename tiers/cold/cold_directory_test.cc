#include "tiers/cold/cold_test_util.h"
