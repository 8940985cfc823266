#include "tests/comm/support/packaged_in_c.h"

#include <dlfcn.h>

#include <cstdio>

#include "tests/comm/support/packaged_ranks.h"
#include "tutti/comm/collectives_in_c.h"
#include "tutti/core/error.h"

namespace tutti::comm::packaged {
namespace {

tutti_tensor in_c(const Tensor& t) {
  tutti_tensor made{t.raw_data(), static_cast<tutti_dtype>(t.dtype()), t.ndim(), {}};
  for (int d = 0; d < t.ndim(); ++d) made.sizes[d] = t.extent(d);
  return made;
}

class PackageInC {
 public:
  PackageInC(const FunctionsInC& functions, const std::string& path) : f_(functions) {
    require(f_.open(path.c_str(), nullptr, &package_), TUTTI_OK);
  }
  ~PackageInC() { f_.close(package_); }
  PackageInC(const PackageInC&) = delete;
  PackageInC& operator=(const PackageInC&) = delete;
  tutti_package* get() { return package_; }

  void require(tutti_code got, tutti_code expected, const std::string& text = "") const {
    const tutti_error* error = f_.last_error();
    TUTTI_CHECK(got == expected, "code {} in the place of {}: {}", static_cast<int>(got), static_cast<int>(expected),
                got == TUTTI_OK ? "" : error->text);
    if (!text.empty()) require_has(error->text, text);
  }
  tutti_code run(const Tensor& x, std::span<const Tensor> into) {
    const tutti_tensor input = in_c(x);
    std::vector<tutti_tensor> outputs;
    for (const Tensor& t : into) outputs.push_back(in_c(t));
    return f_.run(package_, &input, 1, outputs.data(), static_cast<int32_t>(outputs.size()));
  }

 private:
  const FunctionsInC& f_;
  tutti_package* package_ = nullptr;
};

void add_result(std::string& text, size_t k, const Tensor& result) {
  uint64_t hash = 14695981039346656037u;
  const auto* bytes = static_cast<const unsigned char*>(result.raw_data());
  for (int64_t i = 0; i < result.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  text += fmt::format("result {}: {} hash {:016x}\n", k, fmt::join(result.extents(), " "), hash);
}

// Element i is (i % 7 - 3) / 4.
Tensor pattern(const Extents& sizes) {
  const Tensor t = Tensor::empty(sizes, DType::f32);
  for (int64_t i = 0; i < t.numel(); ++i) static_cast<float*>(t.raw_data())[i] = (static_cast<float>(i % 7) - 3) / 4;
  return t;
}

template <class Function>
void write(ProcessGroup& group, const std::string& folder, const std::string& name, const Function& function,
           const Tensor& x) {
  const std::string path = file_of(folder, name, group);
  package(path, function, options_for(group, name), x);
  std::string text;
  size_t k = 0;
  for (const Tensor& result : function(x)) add_result(text, k++, to_contiguous(result));
  std::FILE* const file = std::fopen((path + ".txt").c_str(), "w");
  TUTTI_CHECK_ENV(file != nullptr, "{}.txt cannot be written", path);
  std::fputs(text.c_str(), file);
  std::fclose(file);
}

}  // namespace

FunctionsInC functions_of(const std::string& library) {
  void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  TUTTI_CHECK(opened != nullptr, "{}: {}", library, dlerror());
  FunctionsInC functions;
  const auto find = [&](auto& function, const char* name) {
    void* const found = dlsym(opened, name);
    TUTTI_CHECK(found != nullptr, "{} has no {}", library, name);
    function = reinterpret_cast<std::decay_t<decltype(function)>>(found);
  };
  find(functions.open, "tutti_package_open"), find(functions.close, "tutti_package_close");
  find(functions.num_groups, "tutti_package_num_groups"), find(functions.group, "tutti_package_group");
  find(functions.set_groups, "tutti_package_set_groups"), find(functions.run, "tutti_package_run");
  find(functions.last_error, "tutti_last_error");
  functions.is_alone = true;
  return functions;
}

void check_in_c(const FunctionsInC& functions, ProcessGroup& group, const std::string& folder) {
  const ShardedMlp mlp(group);
  const Exchanges exchanges{group};
  const std::string mlp_file = file_of(folder, "mlp", group), exchanges_file = file_of(folder, "exchanges", group);
  package(mlp_file, mlp, options_for(group, "mlp", {{.name = "batch", .dims = {{0, 0}}, .least = 1, .most = 4}}),
          values({2, 6}, group.rank(), 1));
  package(exchanges_file, exchanges,
          options_for(group, "exchanges", {{.name = "rows", .dims = {{0, 0}}, .least = 2, .most = 6, .step = 2}}),
          values({4, 4}, group.rank(), 2));
  const CollectivesInC collectives(group.shared_from_this());
  PackageInC first(functions, mlp_file), second(functions, exchanges_file);
  const Tensor y = Tensor::empty({2, 3});
  first.require(first.run(values({2, 6}, 0, 3), {{y}}), TUTTI_USAGE, "tutti_package_set_groups");
  for (PackageInC* p : {&first, &second}) {
    int32_t count = 0;
    p->require(functions.num_groups(p->get(), &count), TUTTI_OK);
    tutti_group_info info{};
    info.struct_size = sizeof info;
    p->require(functions.group(p->get(), 0, &info), TUTTI_OK);
    TUTTI_CHECK(count == 1 && std::string(info.name) == "0" && info.ranks == 2, "{} groups, '{}' of {}", count,
                info.name, info.ranks);
    TUTTI_CHECK(info.rank == (p == &first ? group.rank() : -1), "the file is for rank {}", info.rank);
    p->require(functions.group(p->get(), 1, &info), TUTTI_USAGE, "there is no group 1, but 1");
    p->require(functions.set_groups(p->get(), &collectives.table(), 1), TUTTI_OK);
  }
  uint64_t seed = 4;
  for (const int64_t size : {1, 3, 2, 3, 4, 1}) {
    const Tensor x = values({size, 6}, 0, ++seed), z = values({2 * (1 + size % 3), 4}, group.rank(), ++seed);
    const Tensor into = Tensor::empty({size, 3});
    first.require(first.run(x, {{into}}), TUTTI_OK);
    expect_same(into, mlp(x));
    const std::vector<Tensor> both{Tensor::empty(z.extents()), Tensor::empty(z.extents())}, live = exchanges(z);
    second.require(second.run(z, both), TUTTI_OK);
    for (size_t i = 0; i < both.size(); ++i) expect_same(both[i], live[i]);
  }

  const auto refused = [&](auto change, const std::string& text) {
    tutti_collectives table = collectives.table();
    change(table);
    first.require(functions.set_groups(first.get(), &table, 1), TUTTI_USAGE, text);
  };
  refused([](auto& t) { t.struct_size = 8; }, "groups[0].struct_size is 8");
  refused([](auto& t) { t.run = nullptr; }, "groups[0].run is NULL");
  refused([](auto& t) { t.rank = 2; }, "groups[0] is rank 2 of 2");
  refused([](auto& t) { t.ranks = 3; }, "with the 2 ranks of group '0', and this group has 3");
  first.require(functions.set_groups(first.get(), nullptr, 1), TUTTI_USAGE, "groups is NULL");
  first.require(functions.set_groups(first.get(), nullptr, 0), TUTTI_USAGE, "0 groups are given");
  // Each opens the file of the other.
  PackageInC wrong(functions, fmt::format("{}/mlp.{}", folder, 1 - group.rank()));
  wrong.require(functions.set_groups(wrong.get(), &collectives.table(), 1), TUTTI_USAGE, "this file is that of rank");
  // Another function on one rank.
  PackageInC& own = group.rank() == 0 ? first : second;
  own.require(functions.set_groups(own.get(), &collectives.table(), 1), TUTTI_USAGE,
              "that was not made together with that of rank");
  // A collective that the interface does not have.
  const auto coalesced = [&](const Tensor& x) { return functional::all_reduce_coalesced({{x, exp(x)}}, "sum", group); };
  const std::string coalesced_file = file_of(folder, "coalesced", group);
  package(coalesced_file, coalesced, options_for(group, "coalesced"), values({2, 3}, group.rank(), 1));
  if (functions.is_alone) {
    tutti_package* none = nullptr;
    first.require(functions.open(coalesced_file.c_str(), nullptr, &none), TUTTI_OTHER_VERSION,
                  "calls ops that this runtime does not have: all_reduce_coalesced");
  } else {
    PackageInC third(functions, coalesced_file);
    third.require(functions.set_groups(third.get(), &collectives.table(), 1), TUTTI_OK);
    third.require(third.run(values({2, 3}, group.rank(), 1), {{Tensor::empty({2, 3}), Tensor::empty({2, 3})}}),
                  TUTTI_USAGE, "all_reduce_coalesced: groups in C have no such collective");
  }
  // The code of run() is that of the call, with what it says.
  group.abort("the test ends it");
  first.require(first.run(values({2, 6}, 0, 3), {{y}}), TUTTI_PEER, "the test ends it");
}

void write_packages(ProcessGroup& group, const std::string& folder) {
  const ShardedMlp mlp(group);
  write(group, folder, "mlp", [&](const Tensor& x) { return std::vector{mlp(x)}; }, pattern({2, 6}));
  write(group, folder, "exchanges", Exchanges{group}, pattern({4, 4}));
  const Tensor seven = Tensor::empty({1}, DType::i64);
  *static_cast<int64_t*>(seven.raw_data()) = 7;
  const auto sum = [&](const Tensor& x) { return std::vector{functional::all_reduce(x, "sum", group)}; };
  write(group, folder, "whole", sum, seven);
}

}  // namespace tutti::comm::packaged
