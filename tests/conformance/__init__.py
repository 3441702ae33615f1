"""Do our policies decide, step by step, what the schedulers of other servers decide?"""
