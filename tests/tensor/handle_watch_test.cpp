// Whoever reads tensors through Tensor objects is told when one of those becomes another tensor, or goes.
#include "tutti/tensor/handle_watch.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using Losses = std::shared_ptr<std::atomic<int64_t>>;

struct Model {
  Tensor weight = Tensor::of<float>({1, 2});
  Tensor bias = Tensor::of<float>({3});
};

// What the program holds, and a reader of it.
struct Program {
  Tensor variable = Tensor::of<float>({1});
  Model model;
  std::vector<Tensor> list = {Tensor::of<float>({1}), Tensor::of<float>({2}), Tensor::of<float>({3})};
  std::optional<Tensor> maybe = Tensor::of<float>({4});
  std::shared_ptr<Model> shared = std::make_shared<Model>();

  std::vector<Tensor> others;  // owners of all of it that are not read
  Losses losses = std::make_shared<std::atomic<int64_t>>(0);

  Program() {
    others = {variable, model.weight, model.bias, *maybe, shared->weight, shared->bias};
    others.insert(others.end(), list.begin(), list.end());
    HandleNotes notes;
    for (int pass = 0; pass < 2; ++pass) {  // the first says which tensors there are
      for (const Tensor* t : {&variable, &model.weight, &model.bias, &*maybe, &shared->weight, &shared->bias})
        read(notes, *t);
      for (const Tensor& t : list) read(notes, t);
    }
    notes.watch(losses);
  }
  // As a function does that hands its own copies on.
  static void read(HandleNotes& notes, const Tensor& t) {
    const Tensor copy = t;
    Tensor moved = Tensor(copy);
    const Tensor last = std::move(moved);
    notes.read(last);
  }
};

TEST(HandleWatch, EveryWayToLoseAHandleIsSeenThoughOthersOwnTheTensor) {
  const std::pair<const char*, std::function<void(Program&)>> ways[] = {
      {"copy assignment",
       [](Program& p) {
         const Tensor other = Tensor::of<float>({9});
         p.variable = other;
       }},
      {"move assignment", [](Program& p) { p.variable = Tensor::of<float>({9}); }},
      {"reset", [](Program& p) { p.variable = Tensor(); }},
      {"swap",
       [](Program& p) {
         Tensor other = Tensor::of<float>({9});
         std::swap(p.variable, other);
       }},
      {"swap of two that are read", [](Program& p) { std::swap(p.list[0], p.list[2]); }},
      {"moved from", [](Program& p) { p.others.push_back(std::move(p.variable)); }},
      {"another model", [](Program& p) { p.model = Model{}; }},
      {"a member", [](Program& p) { p.model.weight = Tensor::of<float>({5, 6}); }},
      {"a member of a shared model", [](Program& p) { p.shared->bias = Tensor::of<float>({7}); }},
      {"another shared model", [](Program& p) { p.shared = std::make_shared<Model>(); }},
      {"a vector grows beyond its room",
       [](Program& p) { p.list.shrink_to_fit(), p.list.push_back(Tensor::of<float>({4})); }},
      {"a vector shrinks", [](Program& p) { p.list.pop_back(); }},
      {"an element goes", [](Program& p) { p.list.erase(p.list.begin()); }},
      {"another vector", [](Program& p) { p.list = {p.list[1], p.list[0]}; }},
      {"nothing in an optional", [](Program& p) { p.maybe.reset(); }},
  };
  for (const auto& [name, replace] : ways) {
    Program program;
    EXPECT_EQ(*program.losses, 0) << name;
    replace(program);
    EXPECT_GT(*program.losses, 0) << name;
  }
}

TEST(HandleWatch, WhatOthersDoWithTheTensorsIsNoLoss) {
  Program program;
  {
    const std::vector<Tensor> copies = program.list;
    Tensor copy = program.variable, second = copy;
    copy = program.model.weight;
    std::swap(copy, second);
    program.others.clear();
    program.variable = Tensor(program.variable);  // the tensor that it is
    const Tensor view = program.variable.alias();
  }
  EXPECT_EQ(*program.losses, 0);
}

TEST(HandleWatch, ALaterWatchDoesNotHearOfEarlierHandles) {
  Tensor a = Tensor::of<float>({1});
  const Losses first = std::make_shared<std::atomic<int64_t>>(0), second = std::make_shared<std::atomic<int64_t>>(0);
  {
    HandleNotes notes;
    notes.read(a);
    notes.watch(first);
  }
  Tensor b = a;
  {
    HandleNotes notes;
    notes.read(b);
    notes.watch(second);
    EXPECT_TRUE(notes.has_handle_of(a));
  }
  a = Tensor();
  EXPECT_EQ(*first, 1);
  EXPECT_EQ(*second, 0);
  b = Tensor();
  EXPECT_EQ(*second, 1);
}

}  // namespace
}  // namespace tutti
