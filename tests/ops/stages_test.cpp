// Registration of dispatch stages, and the order in which calls pass them.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/dispatch.h"

namespace tutti {
namespace {

std::vector<std::string> passed;

// Notes that a call passed, and lets it go on.
struct NotingStage final : Stage {
  explicit NotingStage(const char* n) : name(n) {}
  void handle(const OpCall& call, std::span<Tensor> outputs) override {
    passed.push_back(std::string(name) + ":" + call.op.name);
    const StageScope off(0, mask);
    apply(call.op, call.inputs, call.attrs, outputs);
  }
  const char* name;
  StageMask mask = 0;
};

NotingStage& stage(const char* name, StagePlace place) {
  auto s = std::make_unique<NotingStage>(name);
  s->mask = register_stage(name, place, s.get());
  return *s.release();  // registered stages live as long as the process
}

TEST(Stages, PassACallFromAutogradToTheKernels) {
  static NotingStage& kernels = stage("test kernels", StagePlace::kernels);
  static NotingStage& sharding = stage("test sharding", StagePlace::sharding);
  static NotingStage& second = stage("test sharding, second", StagePlace::sharding);
  EXPECT_NE(sharding.mask, second.mask);
  EXPECT_EQ((sharding.mask | second.mask) & ~mask_of(StagePlace::sharding), 0);
  EXPECT_EQ(stage_names(static_cast<StageMask>(kernels.mask | second.mask | sharding.mask)),
            "test sharding, test sharding, second, test kernels");
  passed.clear();
  {
    const StageScope on(static_cast<StageMask>(kernels.mask | second.mask | sharding.mask), 0);
    EXPECT_EQ(add(ones({1}), 1.0).item(), 2.0);
  }
  std::vector<std::string> adds;
  for (const std::string& p : passed) {
    if (p.ends_with(":add_scalar")) adds.push_back(p);
  }
  EXPECT_EQ(adds, (std::vector<std::string>{"test sharding:add_scalar", "test sharding, second:add_scalar",
                                            "test kernels:add_scalar"}));
}

TEST(Stages, HaveNamesOfTheirOwn) {
  static NotingStage& first = stage("test twice", StagePlace::kernels);
  EXPECT_NE(first.mask, 0);
  NotingStage again("test twice");
  try {
    register_stage("test twice", StagePlace::capture, &again);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("a stage 'test twice' is registered already"), std::string::npos) << e.what();
  }
}

TEST(Stages, SayWhenAPlaceIsFull) {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (int i = 0; i <= kStagesPerPlace; ++i) list.push_back("test capture " + std::to_string(i));
    return list;
  }();
  try {
    for (const std::string& name : names) stage(name.c_str(), StagePlace::capture);
    FAIL() << "more stages than bits";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("finds no room: its place holds 4 stages at most"), std::string::npos)
        << e.what();
    EXPECT_NE(std::string(e.what()).find("test capture 0"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tutti
