# backends/ref/ref.c is the oracle of every backend
