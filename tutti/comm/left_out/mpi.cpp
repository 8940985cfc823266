#include "tutti/comm/left_out/left_out.h"
#include "tutti/comm/mpi/mpi_transport.h"

namespace tutti::comm {

std::unique_ptr<Transport> make_mpi_transport(const GroupSeat&) { throw_left_out("transport mpi", TUTTI_MPI_WHY_NOT); }

}  // namespace tutti::comm
