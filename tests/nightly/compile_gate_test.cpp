// All programs of `tutti bench compile --gate`: none takes much longer compiled, and none more memory.
#include <gtest/gtest.h>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

// A call of a compiled function costs half a microsecond more than one of an op, which the smallest products show.
TEST(CompileGate, AllProgramsStayBelowTheLimit) {
  Workplace work;
  const Output output = work.tutti("bench compile --gate --limit 1.8");
  EXPECT_EQ(output.status, 0) << output.err << output.out;
}

}  // namespace
}  // namespace tutti::test
