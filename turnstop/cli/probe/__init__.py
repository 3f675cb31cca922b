"""`turnstop probe`: whether an adapter's stop is real, promise by promise.

Nothing of the adapter is imported by the command itself. `child` runs in a process of its own, in
which an adapter may hang, print, exit or leave things behind; `session` starts that process, hears
its messages, and ends all of it. `job` has what the two tell each other.
"""
