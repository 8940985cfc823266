// Memory that is lent to compiled functions, as the copies of parameters are that ranks gather: when a call asks for
// it, and when it gives it back.
#include "tutti/tensor/lent_memory.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/unary.h"

namespace tutti {
namespace {

using namespace graph_test;

// Lends a matrix, whose elements it keeps elsewhere meanwhile.
class Library final : public MemoryLender {
 public:
  Library(char name, const Tensor& t, bool takes_back, std::string& log)
      : name_(name), tensor_(t), kept_(clone(t)), takes_back_(takes_back), log_(log) {
    set_lender(tensor_, this);
    tensor_.storage()->release_memory();
  }
  ~Library() { set_lender(tensor_, nullptr); }
  void lend() override {
    if (fails) throw EnvironmentError("nobody brings it");
    log_ += fmt::format("+{} ", name_);
    tensor_.storage()->restore_memory();
    std::memcpy(tensor_.raw_data(), kept_.raw_data(), static_cast<size_t>(kept_.nbytes()));
  }
  void take_back(bool again) override {
    log_ += fmt::format("-{}{} ", name_, again ? "?" : "");
    tensor_.storage()->release_memory();
  }
  bool takes_back() const override { return takes_back_; }
  bool is_here() const { return tensor_.storage()->has_memory(); }
  bool fails = false;

 private:
  const char name_;
  const Tensor tensor_, kept_;
  const bool takes_back_;
  std::string& log_;
};

constexpr int64_t kSide = 32;

struct Chain {
  Chain() {
    for (uint64_t i = 0; i < 4; ++i) weights.push_back(values({kSide, kSide}, i + 1));
  }
  Tensor forward(const Tensor& x) const {
    Tensor y = x;
    for (const Tensor& w : weights) y = tanh(mul(matmul(y, w), 0.1));
    return sum(y);
  }
  // One graph with forward and backward.
  auto step() const {
    return compile(
        [this](const Tensor& x) {
          const Tensor loss = forward(x);
          backward(loss);
          return detach(loss);
        },
        {.name = "step"});
  }
  std::vector<std::unique_ptr<Library>> lend(bool takes_back, std::string& log) {
    std::vector<std::unique_ptr<Library>> libraries;
    for (size_t i = 0; i < weights.size(); ++i)
      libraries.push_back(std::make_unique<Library>(static_cast<char>('a' + i), weights[i], takes_back, log));
    return libraries;
  }
  std::vector<Tensor> weights;
};

Tensor argument() { return requires_grad_(values({3, kSide}, 9)); }

TEST(LentMemory, IsThereWhileABlockIsUsedInForwardAndInBackward) {
  Chain chain;
  const Tensor eager = argument();
  const Tensor expected = chain.forward(eager);
  backward(expected);
  std::string log;
  const auto libraries = chain.lend(true, log);
  const auto step = chain.step();
  for (int call = 0; call < 5; ++call) {
    const Tensor x = argument();
    expect_same(step(x), expected);
    expect_same(grad_of(x), grad_of(eager));
    EXPECT_EQ(log, "+a -a? +b -b? +c -c? +d -d +c -c +b -b +a -a ") << "call " << call;
    log.clear();
    for (const auto& library : libraries) EXPECT_FALSE(library->is_here());
  }
}

TEST(LentMemory, StaysWhereTheLenderDoesNotTakeItBack) {
  Chain chain;
  std::string log;
  const auto libraries = chain.lend(false, log);
  const auto step = chain.step();
  for (int call = 0; call < 2; ++call) {
    step(argument());
    EXPECT_EQ(log, "+a +b +c +d ");
    log.clear();
    for (const auto& library : libraries) EXPECT_TRUE(library->is_here());
  }
}

TEST(LentMemory, IsAskedForByGraphsOfForwardAndBackward) {
  Chain chain;
  const Tensor eager = argument();
  backward(chain.forward(eager));
  std::string log;
  const auto libraries = chain.lend(true, log);
  const auto forward = compile([&](const Tensor& x) { return chain.forward(x); }, {.name = "forward"});
  const Tensor x = argument();
  const Tensor loss = forward(x);
  EXPECT_EQ(log, "+a -a +b -b +c -c +d -d ");
  log.clear();
  backward(loss);
  EXPECT_EQ(log, "+d -d +c -c +b -b +a -a ");
  expect_same(grad_of(x), grad_of(eager));
}

// A tensor between two uses of others keeps its memory: it would be asked for at once.
TEST(LentMemory, OfTensorsThatTakeTurnsStays) {
  Chain chain;
  std::string log;
  const auto libraries = chain.lend(true, log);
  const auto turns = compile(
      [&](const Tensor& x) {
        Tensor y = x;
        for (int i = 0; i < 3; ++i) y = tanh(matmul(tanh(matmul(y, chain.weights[0])), chain.weights[1]));
        return sum(y);
      },
      {.name = "turns"});
  turns(values({3, kSide}, 9));
  EXPECT_EQ(log, "+a +b -a -b ");
}

TEST(LentMemory, ThatDoesNotComeEndsTheCall) {
  Chain chain;
  std::string log;
  const auto libraries = chain.lend(true, log);
  const auto step = chain.step();
  libraries[2]->fails = true;
  EXPECT_THROW(step(argument()), EnvironmentError);
  libraries[2]->fails = false;
  const Tensor x = argument();
  EXPECT_NO_THROW(step(x));
  for (const auto& library : libraries) EXPECT_FALSE(library->is_here());
}

}  // namespace
}  // namespace tutti
