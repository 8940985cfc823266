// The C interface over PackageConstants.
#include "tutti/deploy/tutti_constants.h"

#include <algorithm>

#include "tutti/deploy/c_interface.h"
#include "tutti/deploy/package_constants.h"

namespace c_interface = tutti::deploy::c_interface;

tutti_code tutti_package_num_constants(const tutti_package* package, int32_t* count) {
  return c_interface::guarded([&] {
    c_interface::refuse_null(count, "count");
    *count = static_cast<int32_t>(c_interface::package_of(package).manifest().named_constants.size());
  });
}

tutti_code tutti_package_constant(const tutti_package* package, int32_t index, tutti_constant_info* info) {
  return c_interface::guarded([&] {
    const auto& constants = c_interface::package_of(package).manifest().named_constants;
    TUTTI_CHECK(index >= 0 && static_cast<size_t>(index) < constants.size(),
                "there is no named constant {}, but {} of them", index, constants.size());
    const auto& constant = constants[static_cast<size_t>(index)];
    tutti_constant_info filled{};
    filled.name = constant.name.c_str();
    filled.dtype = static_cast<tutti_dtype>(constant.dtype);
    filled.ndim = constant.sizes.ndim();
    std::copy(constant.sizes.begin(), constant.sizes.end(), filled.sizes);
    filled.bytes = constant.nbytes();
    c_interface::hand_out(filled, info);
  });
}

tutti_code tutti_package_set_constants(tutti_package* package, const char* const* names, const tutti_tensor* values,
                                       int32_t count) {
  return c_interface::guarded([&] {
    auto& opened = c_interface::package_to_change(package);
    const std::vector<tutti::Tensor> tensors = c_interface::tensors_of(values, count, "value");
    if (count > 0) c_interface::refuse_null(names, "names");
    std::vector<tutti::deploy::NewConstant> list;
    for (int32_t i = 0; i < count; ++i) {
      c_interface::refuse_null(names[i], "a name");
      list.push_back({names[i], tensors[static_cast<size_t>(i)]});
    }
    opened.set_constants(list);
  });
}
