"""A sweep from Python: several launches side by side, results as they come (docs/python.md)."""

import asyncio

import redmesh


async def measure(steps: int) -> tuple[int, str]:
    """One launch of two ranks; its output."""
    async with redmesh.launch(["sh", "-c", f"echo $((YOD_RANK * {steps}))"], size=2, wait_for_nodes_s=60) as job:
        result = await job.finished()
    return steps, " ".join(sorted(result.text.split(), key=int))


async def main() -> None:
    for done in asyncio.as_completed([measure(steps) for steps in (1, 10, 100)]):
        steps, numbers = await done
        print(f"{steps}: {numbers}")


if __name__ == "__main__":
    asyncio.run(main())
