"""One file an algorithm: its advantages and its loss, pure.

On the policy's own samples: `rloo` REINFORCE with a leave-one-out baseline; `grpo` its group-relative cousins
(Dr. GRPO, DAPO); `ppo` with a critic's advantage for each token. On comparisons: `dpo` and its kin (IPO, SLiC, cDPO,
rDPO), also online; `reward_model` Bradley-Terry. On demonstrations: `sft`.
"""
