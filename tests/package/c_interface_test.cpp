// The C interface: codes and texts of errors, structs of other sizes, and a program in C that links the runtime alone.
#include <gtest/gtest.h>
#include <pthread.h>

#include "tests/package/support/c_program.h"
#include "tests/package/support/packaged_cases.h"
#include "tutti/deploy/tutti_state.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/inplace.h"

namespace tutti {
namespace {

using package_test::Block;
using package_test::fnv;
using package_test::for_this_processor;
using package_test::has;
using package_test::kProgram;
using package_test::Mlp;
using package_test::Outcome;
using package_test::pattern;
using package_test::run_command;
using package_test::values;

TEST(PackageInC, AProgramThatLinksTheRuntimeAloneGivesTheSameBits) {
  const testing::TemporaryFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Block block(dtype);
    package(folder / "block", block,
            {.name = "block", .dynamic = {{.name = "tokens", .dims = {{0, 1}}, .least = 1, .most = 12}}},
            values(1, {2, 4, 16}, dtype));
    for (const int64_t tokens : {1, 7, 12}) {
      const Outcome outcome =
          run_command(fmt::format("{}{} {} tokens={}", package_test::kAlone, kProgram, folder / "block", tokens));
      EXPECT_EQ(outcome.status, 0) << outcome.text;
      EXPECT_HAS(outcome.text, "block, made by Tutti");
      EXPECT_HAS(outcome.text, fnv(block(pattern({2, tokens, 16}, dtype))));
    }
  }
}

TEST(PackageInC, TheProgramHasNoAutogradCaptureOrLlvm) {
  const Outcome libraries = run_command("ldd " + kProgram), symbols = run_command("nm -C " + kProgram);
  ASSERT_EQ(libraries.status, 0) << libraries.text;
  EXPECT_FALSE(has(libraries.text, "LLVM")) << libraries.text;
  ASSERT_EQ(symbols.status, 0);
  EXPECT_HAS(symbols.text, "tutti_package_run");
  for (const char* name : {"tutti::autograd::", "tutti::graph::Trace::", "llvm::", "tutti::nn::", "tutti::train::"})
    EXPECT_FALSE(has(symbols.text, name)) << name;
}

TEST(PackageInC, APackageForAnotherProcessorIsRefusedBeforeItRuns) {
  const testing::TemporaryFolder folder;
  package(folder / "f", Mlp(), {.name = "f", .levels = {codegen::CpuTarget::avx512}}, values(1, {2, 16}));
  const Outcome outcome = run_command(fmt::format("TUTTI_CPU=avx2 {} {}", kProgram, folder / "f"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_HAS(outcome.text, fmt::format("error {}: ", static_cast<int>(TUTTI_PROCESSOR)));
  EXPECT_HAS(outcome.text, "has code for avx512 (AVX2, FMA, BMI2, AVX512F, AVX512BW");
  EXPECT_HAS(outcome.text, "none for avx2");
}

struct Opened {
  Opened() {
    package(
        folder / "f", [](const Tensor& x, const Tensor& y) { return add(x, y); },
        for_this_processor("f", {{.name = "n", .dims = {{0, 0}, {1, 0}}, .least = 1, .most = 3}}), values(1, {2, 2}),
        values(2, {2, 2}));
    EXPECT_EQ(tutti_package_open((folder / "f").c_str(), nullptr, &opened), TUTTI_OK);
  }
  ~Opened() { tutti_package_close(opened); }
  testing::TemporaryFolder folder;
  tutti_package* opened = nullptr;
};

TEST(PackageInC, CallsReturnCodesAndTexts) {
  const Opened f;
  std::vector<float> x(6, 1.0f), y(6, 2.0f), z(6);
  tutti_tensor in[2] = {{x.data(), TUTTI_F32, 2, {3, 2}}, {y.data(), TUTTI_F32, 2, {3, 2}}},
               out = {z.data(), TUTTI_F32, 2, {3, 2}};
  ASSERT_EQ(tutti_package_run(f.opened, in, 2, &out, 1), TUTTI_OK) << tutti_last_error()->text;
  EXPECT_EQ(z, std::vector<float>(6, 3.0f));
  const auto refusal = [&](auto change) {
    tutti_tensor other[2] = {in[0], in[1]}, result = out;
    change(other, result);
    EXPECT_EQ(tutti_package_run(f.opened, other, 2, &result, 1), TUTTI_USAGE);
    EXPECT_EQ(tutti_last_error()->code, TUTTI_USAGE);
    return std::string(tutti_last_error()->text);
  };
  EXPECT_HAS(refusal([](tutti_tensor* t, tutti_tensor&) { t[1].sizes[0] = 4; }),
             "argument 1, dim 0 is 4, and 'n' is from 1 to 3");
  EXPECT_HAS(refusal([](tutti_tensor* t, tutti_tensor&) { t[0].dtype = TUTTI_BF16; }), "argument 0 is bf16");
  EXPECT_HAS(refusal([](tutti_tensor* t, tutti_tensor&) { t[0].dtype = static_cast<tutti_dtype>(40); }), "dtype 40");
  EXPECT_HAS(refusal([](tutti_tensor* t, tutti_tensor&) { t[0].ndim = 9; }), "input 0 has 9 dims");
  EXPECT_HAS(refusal([](tutti_tensor* t, tutti_tensor&) { t[0].sizes[1] = -1; }), "input 0, dim 1 has size -1");
  EXPECT_HAS(refusal([](tutti_tensor* t, tutti_tensor&) { t[1].data = nullptr; }), "input 1 has no data");
  EXPECT_HAS(refusal([](tutti_tensor* t, tutti_tensor&) { t[1].data = static_cast<char*>(t[1].data) + 1; }),
             "not aligned to 4 bytes");
  EXPECT_HAS(refusal([](tutti_tensor*, tutti_tensor& r) { r.sizes[0] = 2; }), "the memory for result 0 is f32 [2, 2]");
  EXPECT_EQ(tutti_package_run(f.opened, in, 1, &out, 1), TUTTI_USAGE);
  EXPECT_EQ(tutti_package_run(f.opened, in, 2, &out, 0), TUTTI_USAGE);
  EXPECT_EQ(tutti_package_run(f.opened, nullptr, 2, &out, 1), TUTTI_USAGE);
  EXPECT_EQ(tutti_package_run(nullptr, in, 2, &out, 1), TUTTI_USAGE);
  EXPECT_HAS(std::string(tutti_last_error()->text), "the package is NULL");
}

TEST(PackageInC, FilesThatCannotBeOpenedHaveCodes) {
  const testing::TemporaryFolder folder;
  tutti_package* opened = nullptr;
  EXPECT_EQ(tutti_package_open((folder / "missing").c_str(), nullptr, &opened), TUTTI_FILE);
  EXPECT_EQ(opened, nullptr);
  package_test::write_file(folder / "text", std::string(10000, 'x'));
  EXPECT_EQ(tutti_package_open((folder / "text").c_str(), nullptr, &opened), TUTTI_DAMAGED);
  EXPECT_EQ(tutti_package_open(nullptr, nullptr, &opened), TUTTI_USAGE);
  tutti_package_close(nullptr);
}

// Opening a file and reading it would end the thread in the middle.
TEST(PackageInC, AThreadThatIsCancelledEndsBetweenItsCalls) {
  const testing::TemporaryFolder folder;
  package(folder / "f", Mlp(), for_this_processor("f"), values(1, {2, 16}));
  struct Calls {
    std::string path;
    tutti_code code = TUTTI_INTERNAL;
    tutti_package* package = nullptr;
    bool goes_on = false;
  } calls{folder / "f"};
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    auto& c = *static_cast<Calls*>(argument);
    pthread_cancel(pthread_self());
    c.code = tutti_package_open(c.path.c_str(), nullptr, &c.package);
    pthread_testcancel();
    c.goes_on = true;
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, nullptr, run, &calls), 0);
  void* result = nullptr;
  pthread_join(thread, &result);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_EQ(calls.code, TUTTI_OK);
  EXPECT_FALSE(calls.goes_on);
  tutti_package_close(calls.package);
}

TEST(PackageInC, DescriptionsFillInWhatTheStructOfTheCallerHas) {
  const Opened f;
  tutti_package_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(tutti_package_describe(f.opened, &info), TUTTI_OK);
  EXPECT_STREQ(info.function, "f");
  EXPECT_EQ(info.inputs, 2);
  EXPECT_EQ(info.outputs, 1);
  EXPECT_EQ(info.combinations, 3);
  tutti_package_info old{};
  old.inputs = -7;
  old.struct_size = offsetof(tutti_package_info, inputs);
  ASSERT_EQ(tutti_package_describe(f.opened, &old), TUTTI_OK);
  EXPECT_STREQ(old.function, "f");
  EXPECT_EQ(old.inputs, -7);
  old.struct_size = 0;
  EXPECT_EQ(tutti_package_describe(f.opened, &old), TUTTI_USAGE);
  tutti_input_info input{};
  input.struct_size = sizeof input;
  ASSERT_EQ(tutti_package_input(f.opened, 1, &input), TUTTI_OK);
  EXPECT_EQ(input.dtype, TUTTI_F32);
  EXPECT_EQ(input.ndim, 2);
  EXPECT_EQ(input.least[0], 1);
  EXPECT_EQ(input.most[0], 3);
  EXPECT_STREQ(input.name[0], "n");
  EXPECT_EQ(input.most[1], 2);
  EXPECT_EQ(input.name[1], nullptr);
  EXPECT_EQ(input.is_written, 0);
  tutti_input_info shorter{};
  shorter.is_written = -7;
  shorter.struct_size = offsetof(tutti_input_info, is_written);
  ASSERT_EQ(tutti_package_input(f.opened, 1, &shorter), TUTTI_OK);
  EXPECT_STREQ(shorter.name[0], "n");
  EXPECT_EQ(shorter.is_written, -7);
  EXPECT_EQ(tutti_package_input(f.opened, 2, &input), TUTTI_USAGE);
  tutti_tensor in[2] = {{nullptr, TUTTI_F32, 2, {3, 2}}, {nullptr, TUTTI_F32, 2, {3, 2}}}, out{};
  ASSERT_EQ(tutti_package_outputs(f.opened, in, 2, &out, 1), TUTTI_OK);
  EXPECT_EQ(out.ndim, 2);
  EXPECT_EQ(out.sizes[0], 3);
  in[1].dtype = TUTTI_F64;
  EXPECT_EQ(tutti_package_outputs(f.opened, in, 2, &out, 1), TUTTI_USAGE);
  EXPECT_HAS(std::string(tutti_last_error()->text), "argument 1 is f64, the package takes f32");
  EXPECT_EQ(tutti_runtime_version(), TUTTI_RUNTIME_VERSION);
}

// total += x; returns 2 total.
struct Counting {
  Tensor operator()(const Tensor& x) const { return mul(add_(total, x), 2.0); }
  PackageOptions options() const {
    PackageOptions options = for_this_processor("count");
    options.state = {{"total", total}};
    return options;
  }
  Tensor total = values(3, {2, 3});
};

TEST(PackageInC, AProgramRunsAFunctionWithState) {
  const testing::TemporaryFolder folder;
  const Counting count;
  package(folder / "count", count, count.options(), values(1, {2, 3}));
  Tensor last;
  for (int i = 0; i < 3; ++i) last = count(pattern({2, 3}, DType::f32));
  const Outcome outcome = run_command(fmt::format("{} {}", kProgram, folder / "count"));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_HAS(outcome.text, fnv(last));
}

TEST(PackageInC, StateIsReadWrittenAndChecked) {
  const testing::TemporaryFolder folder;
  const Counting count;
  package(folder / "count", count, count.options(), values(1, {2, 3}));
  tutti_package* opened = nullptr;
  ASSERT_EQ(tutti_package_open((folder / "count").c_str(), nullptr, &opened), TUTTI_OK);
  int32_t number = 0;
  ASSERT_EQ(tutti_package_num_state(opened, &number), TUTTI_OK);
  EXPECT_EQ(number, 1);
  tutti_state_info info{};
  info.struct_size = sizeof info;
  EXPECT_EQ(tutti_package_state(opened, 0, nullptr), TUTTI_USAGE);
  ASSERT_EQ(tutti_package_state(opened, 0, &info), TUTTI_OK);
  EXPECT_STREQ(info.name, "total");
  EXPECT_TRUE(info.dtype == TUTTI_F32 && info.ndim == 2 && info.sizes[0] == 2 && info.sizes[1] == 3);
  EXPECT_EQ(tutti_package_state(opened, 1, &info), TUTTI_USAGE);
  tutti_state *one = nullptr, *other = nullptr, *none = nullptr;
  ASSERT_EQ(tutti_state_new(opened, &one), TUTTI_OK);
  ASSERT_EQ(tutti_state_new(opened, &other), TUTTI_OK);
  std::vector<float> x(6, 1.0f), y(6), z(6, 5.0f);
  tutti_tensor in = {x.data(), TUTTI_F32, 2, {2, 3}}, out = {y.data(), TUTTI_F32, 2, {2, 3}},
               tensor = {z.data(), TUTTI_F32, 2, {2, 3}};
  EXPECT_EQ(tutti_package_run(opened, &in, 1, &out, 1), TUTTI_USAGE);
  EXPECT_HAS(std::string(tutti_last_error()->text), "the function changes state, such as 'total'");
  ASSERT_EQ(tutti_state_write(one, "total", &tensor), TUTTI_OK);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(tutti_state_run(opened, one, &in, 1, &out, 1), TUTTI_OK);
  EXPECT_EQ(y, std::vector<float>(6, 14.0f));
  ASSERT_EQ(tutti_state_read(one, "total", &tensor), TUTTI_OK);
  EXPECT_EQ(z, std::vector<float>(6, 7.0f));
  ASSERT_EQ(tutti_state_read(other, "total", &tensor), TUTTI_OK);
  EXPECT_EQ(z, std::vector<float>(count.total.data<float>(), count.total.data<float>() + 6));
  EXPECT_EQ(tutti_state_read(one, "sum", &tensor), TUTTI_USAGE);
  EXPECT_HAS(std::string(tutti_last_error()->text), "no tensor 'sum'; it has total");
  tensor.sizes[1] = 2;
  EXPECT_EQ(tutti_state_read(one, "total", &tensor), TUTTI_USAGE);
  EXPECT_EQ(tutti_state_write(one, "total", &tensor), TUTTI_USAGE);
  EXPECT_EQ(tutti_state_run(opened, nullptr, &in, 1, &out, 1), TUTTI_USAGE);
  EXPECT_EQ(tutti_state_new(nullptr, &none), TUTTI_USAGE);
  EXPECT_EQ(none, nullptr);
  tutti_state_free(one);
  tutti_state_free(other);
  tutti_state_free(nullptr);
  tutti_package_close(opened);
}

}  // namespace
}  // namespace tutti
