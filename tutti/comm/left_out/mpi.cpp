#include "tutti/comm/mpi/mpi_transport.h"
#include "tutti/job/left_out/left_out.h"

namespace tutti::comm {

std::unique_ptr<Transport> make_mpi_transport(const GroupSeat&) { throw_left_out("transport mpi", TUTTI_MPI_WHY_NOT); }

}  // namespace tutti::comm
