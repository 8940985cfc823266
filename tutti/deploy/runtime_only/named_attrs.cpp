// The runtime knows the attrs of ops by the names of their types.
#include "tutti/deploy/op_schema.h"

namespace tutti::deploy {

const AttrsType* attrs_type_of(const OpDef&, std::string_view name) { return attrs_type_named(name); }

}  // namespace tutti::deploy
