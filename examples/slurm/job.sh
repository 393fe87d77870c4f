#!/bin/sh
#SBATCH --nodes=2
#SBATCH --time=10
#SBATCH --job-name=redmesh
# A Slurm job with many launches: the mesh is the job's own, and ends with it. sbatch job.sh
set -e
mesh up                            # on every node of the allocation
for size in 1 2; do
    yod -sz "$size" sh -c 'echo "rank $YOD_RANK of $YOD_SIZE"'
done
mesh history
mesh down
