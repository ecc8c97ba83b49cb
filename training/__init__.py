"""The torchrun program, standalone: torch, NumPy and pydantic.

train      the loop: from the newest good checkpoint to the last step
trainer    what one rank holds: one step, saving, resuming, going back; `history`: what bends it
config     the run file, of a recipe (`recipes`) and sections (`settings/`)

model      the decoder, of the parts in `network/`
parallel   the decoder spread over the processes of `world`, in the ways of `layouts/`
data       sources of shards (`shards`, `rows`, `plan`); which sample comes when: `samples/`
gradients  forward and backward of a rank's share; `optim`, `muon`, `schedule` move the weights
guards     clipping and refusing; `spikes/` is what follows: ledger, going back, report
checkpoint saved beside training, found again by `verify`; how: `saving/`
metrics    the line of a step; `report` writes, `watching/` measures and judges
ranks/     meeting the others, signals, hanging
planning/  what a run takes, said before it starts

evaluate, sampling, export, hf_import      programs on what was trained
equality, batches, bench_gpu               programs that prove and measure
"""
