class Hard:
    def __init__(self, *a):
        pass
