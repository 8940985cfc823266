#include "tutti/nn/module.h"

#include <algorithm>

#include "tutti/autograd/tape.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/random.h"

namespace tutti::nn {

void Module::collect(const std::string& prefix, const std::vector<NamedTensor> Module::* list,
                     std::vector<NamedTensor>& out) const {
  for (const NamedTensor& own : this->*list) {
    const bool seen = std::any_of(out.begin(), out.end(), [&](const NamedTensor& t) { return t.tensor.is_same(own.tensor); });
    if (!seen) out.push_back({prefix + own.name, own.tensor, own.init});
  }
  for (const Child& child : children_) child.module->collect(prefix + child.name + ".", list, out);
}

std::vector<NamedTensor> Module::named_parameters(const std::string& prefix) const {
  std::vector<NamedTensor> out;
  collect(prefix, &Module::parameters_, out);
  return out;
}

std::vector<NamedTensor> Module::named_buffers(const std::string& prefix) const {
  std::vector<NamedTensor> out;
  collect(prefix, &Module::buffers_, out);
  return out;
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const NamedTensor& p : named_parameters()) count += p.tensor.numel();
  return count;
}

Tensor Module::add_parameter(std::string name, const Extents& sizes, Init init, DType dtype) {
  MemoryCategoryScope category(MemoryCategory::parameters);
  Tensor t = Tensor::empty(sizes, dtype);
  requires_grad_(t);
  parameters_.push_back({std::move(name), t, init});
  return t;
}

Tensor Module::add_buffer(std::string name, Tensor buffer) {
  buffers_.push_back({std::move(name), buffer, {}});
  return buffer;
}

void Module::add_module(std::string name, Module& child) { children_.push_back({std::move(name), &child}); }

void initialize(Module& module) {
  NoGradScope no_grad;
  for (const NamedTensor& p : module.named_parameters()) {
    switch (p.init.kind) {
      case Init::Kind::zeros: copy_(p.tensor, zeros({}, DType::f32)); break;
      case Init::Kind::ones: copy_(p.tensor, ones({}, DType::f32)); break;
      case Init::Kind::normal: copy_(p.tensor, normal(p.tensor.sizes(), random_key(p.name), 0.0, p.init.std)); break;
    }
  }
}

}  // namespace tutti::nn
