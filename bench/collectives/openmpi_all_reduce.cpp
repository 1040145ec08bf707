// The same all-reduce by Open MPI: mpirun -n RANKS openmpi_all_reduce.
#include <mpi.h>

#include "bench/collectives/measure.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<float> data(kintsugi::bench::kLargest / sizeof(float), 0.0F);
  for (const std::size_t bytes : kintsugi::bench::kSizes) {
    const auto count = static_cast<int>(bytes / sizeof(float));
    kintsugi::bench::measure(
        bytes, rank == 0, [&] { MPI_Allreduce(MPI_IN_PLACE, data.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
  }
  MPI_Finalize();
}
