// The C interface over PackageState.
#include "tutti/deploy/tutti_state.h"

#include <algorithm>
#include <cstring>

#include "tutti/deploy/c_interface.h"
#include "tutti/deploy/package_state.h"

using tutti::Tensor;
using tutti::deploy::PackageState;
using tutti::deploy::PackageStateTensor;
namespace c_interface = tutti::deploy::c_interface;

struct tutti_state {
  std::shared_ptr<PackageState> held;
};

namespace {

PackageState& state_of(const tutti_state* state) {
  c_interface::refuse_null(state, "the state");
  return *state->held;
}

Tensor tensor_of(const tutti_tensor* tensor) { return c_interface::tensors_of(tensor, 1, "tensor")[0]; }

}  // namespace

tutti_code tutti_package_num_state(const tutti_package* package, int32_t* count) {
  return c_interface::guarded([&] {
    c_interface::refuse_null(count, "count");
    *count = static_cast<int32_t>(c_interface::package_of(package).manifest().state.size());
  });
}

tutti_code tutti_package_state(const tutti_package* package, int32_t index, tutti_state_info* info) {
  return c_interface::guarded([&] {
    const auto& state = c_interface::package_of(package).manifest().state;
    TUTTI_CHECK(index >= 0 && static_cast<size_t>(index) < state.size(), "there is no state tensor {}, but {}", index,
                state.size());
    const PackageStateTensor& t = state[static_cast<size_t>(index)];
    tutti_state_info filled{
        0, t.name.c_str(), static_cast<tutti_dtype>(t.dtype), static_cast<int32_t>(t.sizes.size()), {}};
    std::copy(t.sizes.begin(), t.sizes.end(), filled.sizes);
    c_interface::hand_out(filled, info);
  });
}

tutti_code tutti_state_new(const tutti_package* package, tutti_state** state) {
  return c_interface::guarded([&] {
    c_interface::refuse_null(state, "state");
    *state = nullptr;
    auto made = std::make_unique<tutti_state>();
    made->held = c_interface::package_of(package).new_state();
    *state = made.release();
  });
}

void tutti_state_free(tutti_state* state) { delete state; }

tutti_code tutti_state_read(const tutti_state* state, const char* name, const tutti_tensor* to) {
  return c_interface::guarded([&] {
    c_interface::refuse_null(name, "name");
    const Tensor target = tensor_of(to), values = state_of(state).read(name);
    TUTTI_CHECK(target.dtype() == values.dtype() && target.extents() == values.extents(),
                "the memory for '{}' is {} {}, the tensor is {} {}", name, name_of(target.dtype()), target.extents(),
                name_of(values.dtype()), values.extents());
    if (values.nbytes() > 0) std::memcpy(target.raw_data(), values.raw_data(), static_cast<size_t>(values.nbytes()));
  });
}

tutti_code tutti_state_write(tutti_state* state, const char* name, const tutti_tensor* from) {
  return c_interface::guarded([&] {
    c_interface::refuse_null(name, "name");
    state_of(state).write(name, tensor_of(from));
  });
}

tutti_code tutti_state_run(const tutti_package* package, tutti_state* state, const tutti_tensor* inputs,
                           int32_t num_inputs, const tutti_tensor* outputs, int32_t num_outputs) {
  return c_interface::guarded([&] {
    const auto& opened = c_interface::package_of(package);
    TUTTI_CHECK(num_outputs >= 0 && static_cast<size_t>(num_outputs) == opened.manifest().outputs.size(),
                "{} outputs are given, there are {}", num_outputs, opened.manifest().outputs.size());
    opened.run(state_of(state), c_interface::tensors_of(inputs, num_inputs, "input"),
               c_interface::tensors_of(outputs, num_outputs, "output"));
  });
}
