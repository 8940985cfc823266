// Kernels of the tests go to a cache of their own.
#include <gtest/gtest.h>

#include <cstdlib>

namespace tutti::testing {
namespace {

class OwnCache : public ::testing::Environment {
 public:
  void SetUp() override { setenv("TUTTI_CACHE_DIR", TUTTI_BINARY_DIR "/ops_test_cache", 0); }
};
const ::testing::Environment* const kOwnCache = ::testing::AddGlobalTestEnvironment(new OwnCache);

}  // namespace
}  // namespace tutti::testing
