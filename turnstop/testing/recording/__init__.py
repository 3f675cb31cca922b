"""Far ends that record what they are told and do what their levers say, at the protocol level."""
