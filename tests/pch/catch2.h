// What every test file includes, compiled once for each test program that has enough files to make up for it.
// (A guard, because GCC does not like #pragma once in a header that it precompiles.)
#ifndef WEIR_TESTS_PCH_CATCH2_H
#define WEIR_TESTS_PCH_CATCH2_H

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <string>
#include <vector>

#endif
