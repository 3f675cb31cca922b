"""`turnstop bench`: stop real agents many times, and measure what became of their work.

`model` has the three things that a measurement is made of: a *bench* is a backend that can be
measured, its *target* is where the work shows (a model endpoint, an agent's executor), and a
*runner* is who starts and stops turns there: turnstop, the bare protocol, or the asyncio peer.
A further program is an entry in `agents`; what is no program is a file beside these, listed in
`command`.
"""
